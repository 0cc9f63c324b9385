"""Shifted inputs: the common corruptions, noise of growing strength, rotation; seeded."""

from leanbayes.shifts.geometry import rotate
from leanbayes.shifts.noises import mix_noise, salt_and_pepper
from leanbayes.shifts.registry import CORRUPTIONS, GROUPS, SEVERITIES, corrupt

__all__ = [
    "CORRUPTIONS",
    "GROUPS",
    "SEVERITIES",
    "corrupt",
    "mix_noise",
    "rotate",
    "salt_and_pepper",
]

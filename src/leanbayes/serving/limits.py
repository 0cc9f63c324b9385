"""How much a client may ask for, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, fields

from leanbayes.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one server.

    Attributes:
        upload: Bytes of a body.
        uploads: Bytes of all bodies that are held at a time.
        pixels: Of an image, before it is decoded.
        samples: Draws of an answer.
        batch: Requests of one pass.
        linger: Seconds that a request waits for company.
        waiting: Requests that wait for the model.
        connections: At a time.
        patience: Seconds that a client has for sending a request, and for taking its answer.
        answer: Seconds until a request that waits is given up.
    """

    upload: int = 8 * 2**20
    uploads: int = 256 * 2**20
    pixels: int = 32_000_000
    samples: int = 200
    batch: int = 64
    linger: float = 0.003
    waiting: int = 256
    connections: int = 512
    patience: float = 20.0
    answer: float = 60.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (value >= 0 if each.name == "linger" else value > 0):
                raise ConfigError(f"{each.name} must be positive, found {value!r}")

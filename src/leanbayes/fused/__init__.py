"""Kernels of our own, for what a GPU does slowly with stock operations."""

from leanbayes.fused.scale import scale_rows, scales

__all__ = ["scale_rows", "scales"]

"""Data sets, as tensors."""

from leanbayes.data.embedded_sets import ImageSplits, digits_28, fashion_mini

__all__ = ["ImageSplits", "digits_28", "fashion_mini"]

"""Triton ops as people write them."""

from captured_ops.loss import cross_entropy
from captured_ops.norm import rms_norm
from captured_ops.pointwise import scale
from captured_ops.tiles import tiles

__all__ = ["cross_entropy", "rms_norm", "scale", "tiles"]

"""Scales tensors."""

from fused_scale.functional import double

__all__ = ["double"]

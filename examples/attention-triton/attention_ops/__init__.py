"""Normalisation and attention in Triton, with their gradients."""

from .attention import attention, attention_varlen
from .rms_norm import rms_norm

__all__ = ["attention", "attention_varlen", "rms_norm"]

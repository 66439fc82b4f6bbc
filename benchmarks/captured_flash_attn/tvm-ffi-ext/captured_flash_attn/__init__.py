"""The forward and backward pass of flash-attn-4."""

from .flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

__all__ = ["_flash_attn_bwd", "_flash_attn_fwd"]

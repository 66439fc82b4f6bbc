"""Ops of the PyPI package liger-kernel, compiled ahead of time, with gradients.

Each function has the arguments of the `apply` that it replaces, without those that choose how
memory is used.
"""

from .activations import geglu, relu_squared, swiglu, swiglu_fused
from .attention import multi_token_attention, neighborhood_attention
from .losses import cross_entropy, jsd, kl_div, tvd, vocab_parallel_cross_entropy
from .mhc import mhc_coeffs, mhc_post_res, mhc_pre
from .norms import (
    dyt,
    fused_add_rms_norm,
    group_norm,
    layer_norm,
    modulated_rms_norm,
    poly_norm,
    rms_norm,
)
from .probabilities import softmax, sparsemax
from .rotary import llama4_rope, qwen2vl_mrope, rope
from .tables import attn_res, embedding

__all__ = [
    "attn_res",
    "cross_entropy",
    "dyt",
    "embedding",
    "fused_add_rms_norm",
    "geglu",
    "group_norm",
    "jsd",
    "kl_div",
    "layer_norm",
    "llama4_rope",
    "mhc_coeffs",
    "mhc_post_res",
    "mhc_pre",
    "modulated_rms_norm",
    "multi_token_attention",
    "neighborhood_attention",
    "poly_norm",
    "qwen2vl_mrope",
    "relu_squared",
    "rms_norm",
    "rope",
    "softmax",
    "sparsemax",
    "swiglu",
    "swiglu_fused",
    "tvd",
    "vocab_parallel_cross_entropy",
]

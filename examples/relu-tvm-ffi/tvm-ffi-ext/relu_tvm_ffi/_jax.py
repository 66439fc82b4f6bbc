"""The kernel as a function of JAX, which is registered when the first array of JAX comes."""

from __future__ import annotations

import sys
from functools import cache

from ._ops import jax_ffi_call, jax_register_ffi_target


def is_array(x) -> bool:
    jax = sys.modules.get("jax")  # whoever has such an array has imported it
    return jax is not None and isinstance(x, jax.Array)


def relu(x):
    _register()
    jax = sys.modules["jax"]
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax_ffi_call("relu", result, vmap_method="broadcast_all")(x)


@cache
def _register() -> None:
    jax_register_ffi_target("relu", allow_cuda_graph=True)

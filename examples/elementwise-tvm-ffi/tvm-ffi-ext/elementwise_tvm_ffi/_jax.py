"""The functions for JAX, each registered when its first array comes."""

from __future__ import annotations

import sys
from functools import cache

from ._ops import jax_ffi_call, jax_register_ffi_target


def is_array(x) -> bool:
    jax = sys.modules.get("jax")  # whoever has such an array has imported it
    return jax is not None and isinstance(x, jax.Array)


def call(name, arrays, out, **numbers):
    if out is not None:
        raise TypeError(f"{name}: arrays of JAX never change, so there is no `out`")
    _register(name)
    jax = sys.modules["jax"]
    result = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    return jax_ffi_call(name, result, vmap_method="broadcast_all")(*arrays, **numbers)


@cache
def _register(name) -> None:
    jax_register_ffi_target(name, allow_cuda_graph=True)

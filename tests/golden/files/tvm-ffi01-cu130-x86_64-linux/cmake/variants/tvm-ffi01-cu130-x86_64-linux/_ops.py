"""The functions of this build, and names for them in Torch and in JAX. Written by kbuild."""

import importlib.util
from pathlib import Path

import tvm_ffi

ops = tvm_ffi.load_module(str(Path(__file__).parent / "_fast_relu_cuda_1a2b3c4.so"))

has_jax = all(importlib.util.find_spec(name) for name in ("jax", "jax_tvm_ffi"))
has_torch = importlib.util.find_spec("torch") is not None


def torch_add_op_namespace_prefix(op_name: str) -> str:
    """Name an operator as `torch.library` does: `namespace::op_name`."""
    return f"_fast_relu_cuda_1a2b3c4::{op_name}"


def jax_add_ffi_target_name_prefix(name: str) -> str:
    """Name an FFI target as JAX sees it: `namespace.name`."""
    return f"_fast_relu_cuda_1a2b3c4.{name}"


def jax_register_ffi_target(name, function=None, **kwargs):
    """Register a function of `ops` (the one of that name, unless given) as an FFI target of JAX."""
    import jax_tvm_ffi

    target = getattr(ops, name) if function is None else function
    return jax_tvm_ffi.register_ffi_target(jax_add_ffi_target_name_prefix(name), target, **kwargs)


def jax_ffi_call(name, *args, **kwargs):
    """`jax.ffi.ffi_call` for a target that `jax_register_ffi_target` registered."""
    import jax

    return jax.ffi.ffi_call(jax_add_ffi_target_name_prefix(name), *args, **kwargs)

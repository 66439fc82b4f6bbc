"""Sums and gates for the arrays of Torch, JAX, NumPy and others; written in TileLang and CuTe DSL.

Nothing of TileLang or CuTe DSL is needed to use them.
"""

from __future__ import annotations

from . import _jax
from ._ops import ops

__all__ = ["axpy", "swiglu"]


def axpy(x, y, *, alpha=1.0, out=None):
    """Compute ``x + alpha * y``.

    Args:
        x: A contiguous array of float32 with any shape, on the CPU or a GPU: of Torch, JAX, NumPy
            or another library with ``__dlpack__``.
        y: The same library, shape and device.
        alpha: What ``y`` is multiplied by.
        out: Where to write the sum: contiguous, the same shape and device. Not for JAX.

    Returns:
        ``out``, or a new array of the same library. It has no derivative.

    Raises:
        RuntimeError: The shapes, dtypes or devices differ, or an array is not contiguous.
    """
    if _jax.is_array(x):
        return _jax.call("axpy", (x, y), out, alpha=alpha)
    return ops.axpy(x, y, alpha=alpha, out=out)


def swiglu(gate, x, *, out=None):
    """Compute ``silu(gate) * x`` on an NVIDIA GPU, in float32, rounded once.

    Args:
        gate: A contiguous array of float32, float16 or bfloat16 with any shape.
        x: The same library, shape, dtype and device.
        out: Where to write the product: contiguous, like ``x``. Not for JAX.

    Returns:
        ``out``, or a new array of the same library. It has no derivative.

    Raises:
        RuntimeError: This is the build for CPUs, or shapes, dtypes or devices differ.
    """
    if not hasattr(ops, "swiglu"):
        raise RuntimeError("swiglu is for NVIDIA's GPUs, and this build is for CPUs")
    if _jax.is_array(gate):
        return _jax.call("swiglu", (gate, x), out)
    return ops.swiglu(gate, x, out=out)

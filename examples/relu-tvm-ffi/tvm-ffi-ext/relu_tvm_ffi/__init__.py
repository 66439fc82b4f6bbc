"""ReLU for the arrays of Torch, JAX, NumPy and others, from one binary per backend."""

from __future__ import annotations

from . import _jax
from ._ops import has_torch, ops

__all__ = ["layers", "relu"]

if has_torch:
    from . import _torch, layers


def relu(x, out=None):
    """Replace every negative element by zero; NaN stays NaN.

    Args:
        x: An array of float32, float64, float16 or bfloat16, with any shape: of Torch, JAX, NumPy
            or another library with ``__dlpack__``. Torch tensors may have any strides; gradients
            and ``torch.compile`` work. JAX arrays may be traced; derivatives of JAX do not work.
        out: Where to write the result: same shape, dtype and device as ``x``, or ``x`` itself, and
            contiguous. Not for JAX, whose arrays never change.

    Returns:
        ``out``, or a new contiguous array of the same library.
    """
    if has_torch and isinstance(x, _torch.Tensor):
        return _torch.relu(x, out)
    if _jax.is_array(x):
        if out is not None:
            raise TypeError("relu: arrays of JAX never change, so there is no `out`")
        return _jax.relu(x)
    if out is None:
        out = _like(x)
    ops.relu(x, out)
    return out


def _like(x):
    """A new array as the array API standard makes one; NumPy has it from 2.0 on."""
    if not hasattr(x, "__array_namespace__"):
        kind = f"{type(x).__module__}.{type(x).__name__}"
        raise TypeError(f"relu: an array like a {kind} cannot be made here, pass `out`")
    return x.__array_namespace__().empty_like(x)

"""Matrix products on Hopper GPUs; the kernel is written in CuTe DSL."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["gemm"]


def gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute ``a @ b``, summed in float32 and rounded once.

    Args:
        a: A bfloat16 or float16 matrix on a Hopper GPU, M x K; copied when it is not contiguous.
            The fast code wants its address to be a multiple of 16 bytes, K and N multiples of 16.
        b: The same dtype, K x N.

    Returns:
        A new matrix, M x N, of the same dtype.

    Raises:
        RuntimeError: Shapes, dtypes or devices do not fit.
    """
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] == 0:
        return a.new_zeros(a.shape[0], b.shape[1])
    return ops.gemm(a.contiguous(), b.contiguous())

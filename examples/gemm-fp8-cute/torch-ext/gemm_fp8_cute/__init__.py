"""Products of float8 matrices with scales per block, on Hopper GPUs; written in CuTe DSL."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["gemm", "quantize"]

BLOCK = 128
_LARGEST = 448.0
"""The largest float8_e4m3fn."""


def gemm(
    a: torch.Tensor, b: torch.Tensor, scales_a: torch.Tensor, scales_b: torch.Tensor
) -> torch.Tensor:
    """Compute ``(a * scales_a) @ (b * scales_b).T`` in bfloat16.

    The products of each 128 elements of K are summed by the tensor cores, and their scaled sums in
    float32.

    Args:
        a: A float8_e4m3fn matrix on a Hopper GPU, M x K; copied when it is not contiguous. The fast
            code wants its address to be a multiple of 16 bytes, K and N multiples of 16.
        b: The same dtype, N x K.
        scales_a: float32, one for each 128 elements of a row: M x ceil(K / 128).
        scales_b: float32, one for each 128 x 128 elements: ceil(N / 128) x ceil(K / 128).

    Returns:
        A new bfloat16 matrix, M x N.

    Raises:
        RuntimeError: Shapes, dtypes or devices do not fit.
    """
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[1] == 0:
        return a.new_zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    return ops.gemm(a.contiguous(), b.contiguous(), scales_a.contiguous(), scales_b.contiguous())


def quantize(x: torch.Tensor, rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Round a matrix to float8_e4m3fn, with a scale for each block of `rows` x 128 elements.

    Args:
        x: A matrix.
        rows: Rows that share a scale: 1 for `a`, 128 for `b`.

    Returns:
        The rounded matrix, and the scales that give `x` back.
    """
    height, width = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -width % BLOCK, 0, -height % rows))
    blocks = padded.view(-(-height // rows), rows, -(-width // BLOCK), BLOCK)
    scales = (blocks.abs().amax((1, 3)) / _LARGEST).clamp(min=1e-12)
    rounded = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return rounded.view(padded.shape)[:height, :width].contiguous(), scales

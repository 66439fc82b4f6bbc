"""What `kbuild tune` compares every candidate with, and what it measures with."""

import torch

BLOCK = 128


def spread(scales: torch.Tensor, rows: int, columns: int, height: int) -> torch.Tensor:
    """One factor for each element: a scale is for `height` x 128 of them."""
    each = scales.repeat_interleave(height, 0).repeat_interleave(BLOCK, 1)
    return each[:rows, :columns]


def gemm(
    a: torch.Tensor, b: torch.Tensor, scales_a: torch.Tensor, scales_b: torch.Tensor
) -> torch.Tensor:
    """The product with sums in float32."""
    left = a.float() * spread(scales_a, *a.shape, 1)
    right = b.float() * spread(scales_b, *b.shape, BLOCK)
    return (left @ right.t()).bfloat16()


def inputs(
    sizes: dict[str, int], dtypes: dict[str, torch.dtype], device: str
) -> dict[str, torch.Tensor]:
    """Scales that are not negative; operands as `kbuild tune` makes them."""
    blocks = -(-sizes["K"] // BLOCK)
    shapes = {"scales_a": (sizes["M"], blocks), "scales_b": (-(-sizes["N"] // BLOCK), blocks)}
    return {name: torch.rand(shape, device=device) + 0.5 for name, shape in shapes.items()}

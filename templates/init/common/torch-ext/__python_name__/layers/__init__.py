"""Layers that the ``kernels`` library can put in the place of a model's own."""

import torch
from torch import nn

from .._ops import ops

__all__ = ["Scale"]


class Scale(nn.Module):
    """Multiply by ``self.factor``, which the layer that this one replaces provides."""

    has_backward: bool = True
    can_torch_compile: bool = True

    factor: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.scale(x, self.factor)

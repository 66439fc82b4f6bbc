"""Layers that the ``kernels`` library can put in the place of a model's own."""

import torch
from torch import nn

from .. import _torch

__all__ = ["ReLU"]


class ReLU(nn.Module):
    """A stateless stand-in for ``torch.nn.ReLU``."""

    has_backward: bool = True
    can_torch_compile: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _torch.relu(x)

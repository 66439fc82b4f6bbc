"""ReLU in Python alone: an operator with autograd and ``torch.compile``, and nothing to compile."""

from . import layers
from ._relu import relu

__all__ = ["layers", "relu"]

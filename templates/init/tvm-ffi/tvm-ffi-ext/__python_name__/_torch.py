"""The kernel as an operator of Torch: on the current stream, with gradients and `torch.compile`."""

import torch
from torch import Tensor

from ._ops import module, torch_add_op_namespace_prefix, torch_register_op

__all__ = ["Tensor", "scale"]


def _scale(x: Tensor, factor: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    module.scale(x, factor, out)
    return out


def _scale_fake(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


scale = torch_register_op("scale(Tensor x, float factor) -> Tensor", _scale, fake=_scale_fake)


def _save_factor(ctx, inputs, output) -> None:
    _, ctx.factor = inputs


def _scale_grad(ctx, grad):
    return scale(grad, ctx.factor), None


torch.library.register_autograd(
    torch_add_op_namespace_prefix("scale"), _scale_grad, setup_context=_save_factor
)

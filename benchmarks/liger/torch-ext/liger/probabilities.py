"""Softmax and sparsemax."""

import torch

from ._ops import add_op_namespace_prefix, ops


def _save_output(ctx, inputs, output):
    ctx.save_for_backward(output)


def _softmax_backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return ops.softmax_backward(grad.contiguous(), y)


def _sparsemax_backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return ops.sparsemax_backward(y, grad.contiguous()), None


torch.library.register_autograd(
    add_op_namespace_prefix("softmax_forward"), _softmax_backward, setup_context=_save_output
)
torch.library.register_autograd(
    add_op_namespace_prefix("sparsemax_forward"), _sparsemax_backward, setup_context=_save_output
)


def softmax(x):
    """Softmax over the last dimension."""
    return ops.softmax_forward(x.contiguous().view(-1, x.shape[-1])).view(x.shape)


def sparsemax(x, dim=-1):
    """Sparsemax over a dimension."""
    wide = x.transpose(dim, -1).contiguous()
    rows = wide.view(-1, wide.shape[-1])
    ordered = torch.sort(rows.detach().float(), dim=-1, descending=True).values
    return ops.sparsemax_forward(rows, ordered).view(wide.shape).transpose(dim, -1)

"""Activations and gated products."""

import torch

from ._ops import add_op_namespace_prefix, ops


def _save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _relu_squared_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return ops.relu_squared_backward(grad.contiguous(), x)


def _geglu_backward(ctx, grad):
    a, b = (saved.clone() for saved in ctx.saved_tensors)
    ops.geglu_backward_(grad.contiguous(), a, b)
    return a, b


def _save_swiglu(ctx, inputs, output):
    a, b, ctx.gate_multiplier = inputs
    ctx.save_for_backward(a, b)


def _swiglu_backward(ctx, grad):
    a, b = (saved.clone() for saved in ctx.saved_tensors)
    ops.swiglu_backward_(grad.contiguous(), a, b, ctx.gate_multiplier)
    return a, b, None


def _swiglu_fused_backward(ctx, grad):
    (y,) = ctx.saved_tensors
    return ops.swiglu_fused_backward(grad.contiguous(), y)


torch.library.register_autograd(
    add_op_namespace_prefix("relu_squared_forward"),
    _relu_squared_backward,
    setup_context=_save_inputs,
)
torch.library.register_autograd(
    add_op_namespace_prefix("geglu_forward"), _geglu_backward, setup_context=_save_inputs
)
torch.library.register_autograd(
    add_op_namespace_prefix("swiglu_forward"), _swiglu_backward, setup_context=_save_swiglu
)
torch.library.register_autograd(
    add_op_namespace_prefix("swiglu_fused_forward"),
    _swiglu_fused_backward,
    setup_context=_save_inputs,
)


def _rows(x):
    return x.contiguous().view(-1, x.shape[-1])


def relu_squared(x):
    """``relu(x) ** 2``."""
    return ops.relu_squared_forward(_rows(x)).view(x.shape)


def geglu(a, b):
    """``gelu(a) * b`` with the tanh approximation."""
    return ops.geglu_forward(_rows(a), _rows(b)).view(a.shape)


def swiglu(a, b, gate_multiplier=1.0, down_multiplier=1.0):
    """``silu(gate_multiplier * a) * b * down_multiplier``."""
    c = ops.swiglu_forward(_rows(a), _rows(b), gate_multiplier).view(a.shape)
    return c if down_multiplier == 1.0 else c * down_multiplier


def swiglu_fused(y):
    """``silu(a) * b`` of ``a, b = y.chunk(2, -1)``, without copies."""
    return ops.swiglu_fused_forward(_rows(y)).view(*y.shape[:-1], y.shape[-1] // 2)

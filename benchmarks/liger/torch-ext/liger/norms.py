"""Normalisations. Gradients of weights are sums over what each multiprocessor has added up."""

import torch

from ._ops import add_op_namespace_prefix, ops

_MODES = {"llama": 0, "gemma": 1, "none": -1}


def _rows(x):
    return x.contiguous().view(-1, x.shape[-1])


def _save_group_norm(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], *output[1:])


def _group_norm_backward(ctx, grad, *_):
    x, weight, mean, rstd = ctx.saved_tensors
    channels = (x.shape[0], weight.shape[0], -1)
    dx, dw, db = ops.group_norm_backward(
        x.view(channels), weight, mean, rstd, grad.contiguous().view(channels)
    )
    return dx.view(x.shape), dw, db, None


def _save_norm(ctx, inputs, output):
    """The input, the weight, the statistics; numbers."""
    ctx.save_for_backward(inputs[0], inputs[1], *output[1:])
    ctx.numbers = [value for value in inputs if not isinstance(value, torch.Tensor)]


def _layer_norm_backward(ctx, grad, *_):
    x, weight, mean, rstd = ctx.saved_tensors
    dx, dw, db = ops.layer_norm_backward(grad.contiguous(), x, weight, mean, rstd)
    return dx, dw.sum(dim=0).to(weight.dtype), db.sum(dim=0).to(weight.dtype), None


def _rms_norm_backward(ctx, grad, *_):
    x, weight, rstd = ctx.saved_tensors
    _, offset, mode = ctx.numbers
    dx, dw = ops.rms_norm_backward(grad.contiguous(), x, weight, rstd, offset, mode)
    return dx, dw.sum(dim=0).to(weight.dtype), None, None, None


def _rms_norm_uncast_backward(ctx, grad, *_):
    x, weight, rstd = ctx.saved_tensors
    dx, dw = ops.rms_norm_uncast_backward(grad.contiguous(), x, weight, rstd, ctx.numbers[1])
    return dx, dw.sum(dim=0).to(weight.dtype), None, None


def _save_fused_add(ctx, inputs, output):
    ctx.save_for_backward(output[1], inputs[2], output[2])
    ctx.numbers = inputs[3:]


def _fused_add_backward(ctx, grad, grad_sum, _):
    total, weight, rstd = ctx.saved_tensors
    _, offset, mode = ctx.numbers
    given = grad.contiguous(), grad_sum.contiguous()
    dx, dw = ops.fused_add_rms_norm_backward(*given, total, weight, rstd, offset, mode)
    return dx, dx.clone(), dw.sum(dim=0).to(weight.dtype), None, None, None


def _poly_norm_backward(ctx, grad, *_):
    x, weight, rstd = ctx.saved_tensors
    dx, dw, db = ops.poly_norm_backward(grad.contiguous(), x, weight, rstd)
    return dx, dw.sum(dim=0).to(weight.dtype), db.sum().to(weight.dtype).view(1), None


def _save_modulated(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.mode = inputs[-1]


def _modulated_backward(ctx, grad, *_):
    x, weight, scale, rstd = ctx.saved_tensors
    each = scale.shape[0] == x.shape[0]
    function = (
        ops.modulated_rms_norm_backward_each if each else ops.modulated_rms_norm_backward_shared
    )
    dx, dw, dscale, dshift = function(grad.contiguous(), x, weight, scale, rstd, ctx.mode)
    return (
        dx,
        dw.sum(dim=0).to(weight.dtype),
        dscale.to(scale.dtype),
        dshift.to(scale.dtype),
        None,
        None,
        None,
    )


def _save_dyt(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3])
    ctx.has_beta = inputs[3] is not None


def _dyt_backward(ctx, grad):
    x, alpha, gamma = ctx.saved_tensors
    dx, da, dg, db = ops.dyt_backward(grad.contiguous(), x, alpha, gamma, ctx.has_beta)
    dbeta = db.sum(0).to(x.dtype) if db is not None else None
    return dx, da.sum().to(x.dtype).unsqueeze(0), dg.sum(0).to(gamma.dtype), dbeta


for name, save, backward in (
    ("group_norm", _save_group_norm, _group_norm_backward),
    ("layer_norm", _save_norm, _layer_norm_backward),
    ("rms_norm", _save_norm, _rms_norm_backward),
    ("rms_norm_uncast", _save_norm, _rms_norm_uncast_backward),
    ("fused_add_rms_norm", _save_fused_add, _fused_add_backward),
    ("poly_norm", _save_norm, _poly_norm_backward),
    ("modulated_rms_norm", _save_modulated, _modulated_backward),
    ("dyt", _save_dyt, _dyt_backward),
):
    torch.library.register_autograd(
        add_op_namespace_prefix(f"{name}_forward"), backward, setup_context=save
    )


def group_norm(x, weight, bias, num_groups, eps):
    """Normalise groups of channels of ``x``, of shape (batch, channels, ...)."""
    groups = x.contiguous().view(x.shape[0], num_groups, -1)
    return ops.group_norm_forward(groups, weight.contiguous(), bias.contiguous(), eps)[0].view(
        x.shape
    )


def layer_norm(x, weight, bias, eps):
    """Normalise rows to a mean of 0 and a variance of 1."""
    return ops.layer_norm_forward(_rows(x), weight.contiguous(), bias.contiguous(), eps)[0].view(
        x.shape
    )


def rms_norm(x, weight, eps, offset=0.0, casting_mode="llama"):
    """Divide rows by their root mean square, and multiply them by ``weight + offset``."""
    rows, weight = _rows(x), weight.contiguous()
    if casting_mode == "none":
        return ops.rms_norm_uncast_forward(rows, weight, eps, offset)[0].view(x.shape)
    return ops.rms_norm_forward(rows, weight, eps, offset, _MODES[casting_mode])[0].view(x.shape)


def fused_add_rms_norm(x, residual, weight, eps, offset=0.0, casting_mode="llama"):
    """`rms_norm` of a sum, and the sum."""
    given = _rows(x), _rows(residual), weight.contiguous()
    y, total, _ = ops.fused_add_rms_norm_forward(*given, eps, offset, _MODES[casting_mode])
    return y.view(x.shape), total.view(x.shape)


def poly_norm(x, weight, bias, eps=1e-6):
    """A polynomial of the third degree of normalised powers; ``bias`` has one element."""
    return ops.poly_norm_forward(_rows(x), weight.contiguous(), bias.view(1), eps)[0].view(x.shape)


def modulated_rms_norm(x, weight, scale, shift, eps, casting_mode="llama"):
    """``(1 + scale) * rms_norm(x) + shift``, with a scale and a shift for each row or 8 rows."""
    given = _rows(x), weight.contiguous(), _rows(scale), _rows(shift)
    return ops.modulated_rms_norm_forward(*given, eps, 0.0, _MODES[casting_mode])[0].view(x.shape)


def dyt(x, alpha, gamma, beta=None):
    """``gamma * tanh(alpha * x) + beta``."""
    given = alpha.contiguous(), gamma.contiguous(), beta if beta is None else beta.contiguous()
    return ops.dyt_forward(_rows(x), *given).view(x.shape)

"""Hyper-connections: 4 streams, 5 iterations, the epsilons that build.toml has."""

import torch

from ._ops import add_op_namespace_prefix, ops

_POST = 2.0


def _save_mix(ctx, inputs, output):
    ctx.save_for_backward(*inputs, *output)


def _mix_backward(ctx, grad, _):
    x, phi, mix, invr = ctx.saved_tensors
    grad_x, grad_phi = ops.mhc_mix_backward(x, phi, mix, invr, grad.contiguous())
    return grad_x, grad_phi.to(phi.dtype)


def _save_sinkhorn(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output[3])


def _sinkhorn_backward(ctx, grad_pre, grad_post, grad_res, _):
    mix, b, alpha_pre, alpha_post, alpha_res, hist = ctx.saved_tensors
    streams = grad_pre.shape[1]
    res = ops.mhc_sinkhorn_backward(mix, b, hist, grad_res.contiguous(), alpha_res).reshape(
        mix.shape[0], -1
    )
    mix_pre, mix_post, mix_res = (
        mix[:, :streams],
        mix[:, streams : 2 * streams],
        mix[:, 2 * streams :],
    )
    sigmoid = torch.sigmoid(mix_pre * alpha_pre + b[:streams])
    pre = grad_pre * (sigmoid * (1.0 - sigmoid))
    sigmoid = torch.sigmoid(mix_post * alpha_post + b[streams : 2 * streams])
    post = grad_post * (_POST * sigmoid * (1.0 - sigmoid))
    return (
        torch.cat([pre * alpha_pre, post * alpha_post, res * alpha_res], dim=1),
        torch.cat([pre.sum(dim=0), post.sum(dim=0), res.sum(dim=0)]),
        (pre * mix_pre).sum(),
        (post * mix_post).sum(),
        (res * mix_res).sum(),
    )


def _save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _pre_backward(ctx, grad):
    x, h = ctx.saved_tensors
    grad_x, grad_h = ops.mhc_pre_backward(x, h, grad.contiguous())
    return grad_x.to(x.dtype), grad_h


def _post_res_backward(ctx, grad):
    x, f, h_post, h_res = ctx.saved_tensors
    grad_x, grad_f, grad_post, grad_res = ops.mhc_post_res_backward(
        x, f, h_post, h_res, grad.contiguous()
    )
    return grad_x.to(x.dtype), grad_f.to(f.dtype), grad_post, grad_res


for name, save, backward in (
    ("mix", _save_mix, _mix_backward),
    ("sinkhorn", _save_sinkhorn, _sinkhorn_backward),
    ("pre", _save_inputs, _pre_backward),
    ("post_res", _save_inputs, _post_res_backward),
):
    torch.library.register_autograd(
        add_op_namespace_prefix(f"mhc_{name}_forward"), backward, setup_context=save
    )


def _flat(x):
    return x.contiguous().view(-1, *x.shape[-2:])


def mhc_coeffs(x, phi, b, alpha_pre, alpha_post, alpha_res):
    """Coefficients of shape (..., 4), (..., 4), (..., 4, 4) from streams of shape (..., 4, C)."""
    mix, _ = ops.mhc_mix_forward(x.contiguous().view(-1, phi.shape[0]), phi.contiguous())
    pre, post, res, _ = ops.mhc_sinkhorn_forward(mix, b, alpha_pre, alpha_post, alpha_res)
    outer = x.shape[:-2]
    return pre.view(*outer, -1), post.view(*outer, -1), res.view(*outer, *res.shape[1:])


def mhc_pre(x, h_pre):
    """The sum of the streams, weighted."""
    flat = _flat(x)
    return (
        ops.mhc_pre_forward(flat, h_pre.view(-1, flat.shape[1]).float())
        .to(x.dtype)
        .view(*x.shape[:-2], -1)
    )


def mhc_post_res(x, f_out, h_post, h_res):
    """The streams mixed, and what a layer gave added to each."""
    flat, streams = _flat(x), x.shape[-2]
    weights = h_post.view(-1, streams).float(), h_res.view(-1, streams, streams).float()
    return (
        ops.mhc_post_res_forward(flat, f_out.contiguous().view(-1, x.shape[-1]), *weights)
        .to(x.dtype)
        .view(x.shape)
    )

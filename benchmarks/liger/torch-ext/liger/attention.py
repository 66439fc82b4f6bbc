"""Attention in a neighbourhood, and over several tokens."""

import torch

from ._ops import add_op_namespace_prefix, ops
from .probabilities import softmax, sparsemax

_MULTI_TOKEN = add_op_namespace_prefix("multi_token_attention")


@torch.library.custom_op(
    _MULTI_TOKEN,
    mutates_args=(),
    schema="(Tensor scores, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
    "int[] dilation, int groups, bool sparse) -> (Tensor, Tensor)",
)
def _multi_token(scores, weight, bias, stride, padding, dilation, groups, sparse):
    masked = ops.mask_inf_forward(_squares(scores)).view(scores.shape)
    weights = sparsemax(masked) if sparse else softmax(masked)
    mixed = torch.nn.functional.conv2d(weights, weight, bias, stride, padding, dilation, groups)
    return ops.mask_zero_forward(_squares(mixed)).view(mixed.shape), weights


@torch.library.register_fake(_MULTI_TOKEN)
def _(scores, weight, bias, stride, padding, dilation, groups, sparse):
    mixed = torch.nn.functional.conv2d(scores, weight, bias, stride, padding, dilation, groups)
    return torch.empty_like(mixed, memory_format=torch.contiguous_format), torch.empty_like(scores)


def _save_multi_token(ctx, inputs, output):
    _, weight, bias, *ctx.settings = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(weight, output[1])


def _multi_token_backward(ctx, grad, _):
    weight, weights = ctx.saved_tensors
    *settings, sparse = ctx.settings
    stride, padding, dilation, groups = settings
    grad = ops.mask_backward(_squares(grad.contiguous())).view(grad.shape)
    grad_weights = torch.nn.functional.conv_transpose2d(
        grad, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    grad_weight = torch.nn.grad.conv2d_weight(
        weights, weight.shape, grad, stride, padding, dilation, groups
    )
    if sparse:
        rows = grad_weights.contiguous().view(-1, weights.shape[-1])
        scores = ops.sparsemax_backward(weights.view(rows.shape), rows).view(weights.shape)
    else:
        scores = weights * (grad_weights - (grad_weights * weights).sum(dim=-1, keepdim=True))
    scores = ops.mask_backward(_squares(scores)).view(scores.shape)
    return scores, grad_weight, grad.sum(dim=(0, 2, 3)) if ctx.has_bias else None, *(5 * [None])


torch.library.register_autograd(
    _MULTI_TOKEN, _multi_token_backward, setup_context=_save_multi_token
)


def _squares(x):
    return x.contiguous().view(-1, *x.shape[-2:])


def multi_token_attention(
    scores, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, sparse=False
):
    """Causal attention weights from scores of shape (batch, heads, L, L), convolved."""
    pairs = (
        [value, value] if isinstance(value, int) else list(value)
        for value in (stride, padding, dilation)
    )
    return _multi_token(scores.contiguous(), weight.contiguous(), bias, *pairs, groups, sparse)[0]


_NEIGHBORHOOD = add_op_namespace_prefix("neighborhood_attention")


@torch.library.custom_op(
    _NEIGHBORHOOD,
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, int window, int step) -> (Tensor, Tensor)",
)
def _neighborhood(query, key, value, window, step):
    mask = ops.neighborhood_mask(query, window, step)
    scores = ops.neighborhood_qk(query, key, mask, window, step)
    weights = ops.softmax_forward(scores.view(-1, scores.shape[-1])).view(scores.shape)
    return ops.neighborhood_av(weights, value), weights


@torch.library.register_fake(_NEIGHBORHOOD)
def _(query, key, value, window, step):
    tokens = query.shape[2]
    return torch.empty_like(query), query.new_empty(*query.shape[:2], tokens, tokens)


def _save_neighborhood(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], output[1])


def _neighborhood_backward(ctx, grad, _):
    query, key, value, weights = ctx.saved_tensors
    grad = grad.contiguous()
    rows = ops.neighborhood_grad_attn(grad, value).view(-1, weights.shape[-1])
    scores = ops.softmax_backward(rows, weights.view(rows.shape)).view(weights.shape)
    return (
        ops.neighborhood_grad_q(scores, key),
        ops.neighborhood_grad_k(scores, query),
        ops.neighborhood_grad_v(weights, grad),
        None,
        None,
    )


torch.library.register_autograd(
    _NEIGHBORHOOD, _neighborhood_backward, setup_context=_save_neighborhood
)


def neighborhood_attention(query, key, value, kernel_size=7, dilation=1):
    """Attention of each token to those around it; (batch, heads, tokens, size)."""
    return _neighborhood(
        query.contiguous(), key.contiguous(), value.contiguous(), kernel_size, dilation
    )[0]

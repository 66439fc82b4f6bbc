"""Attention with grouped heads, for batches of one length and for packed sequences."""

import torch

from . import backward, backward_hopper, forward, forward_hopper
from .hopper import can_run
from .sequences import check


def _forward(q, k, v, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """`out` and the logarithms, to the base of 2, of the sums of its softmax."""
    check(q, k, v)
    heads = q.shape[-2]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((*q.shape[:-3], heads, q.shape[-3]), dtype=torch.float32, device=q.device)
    arguments = (q, k, v, out, lse, cu_seqlens, batches, seqlen, causal, softmax_scale)
    if can_run(q, k, v):
        forward_hopper.forward(*arguments)
    else:
        forward.forward(*arguments)
    return out, lse


def _backward(q, k, v, out, lse, dout, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """The gradients of `q`, `k` and `v`."""
    dout = dout.contiguous()
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    delta = backward.inner_products(out, dout, lse, cu_seqlens, batches, seqlen)
    tensors = (q, k, v, dout, lse, delta, dq, dk, dv)
    if cu_seqlens is None and can_run(q, k, v) and dout.data_ptr() % 16 == 0:
        backward_hopper.backward(*tensors, batches, seqlen, causal, softmax_scale)
    else:
        backward.backward(*tensors, cu_seqlens, batches, seqlen, causal, softmax_scale)
    return dq, dk, dv


class AttentionFunction(torch.autograd.Function):
    """`q` is (batch, row, head, dim); `k` and `v` may have fewer heads."""

    @staticmethod
    def forward(ctx, q, k, v, causal, softmax_scale):
        batches, seqlen = q.shape[:2]
        out, lse = _forward(q, k, v, None, batches, seqlen, causal, softmax_scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.softmax_scale = causal, softmax_scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse = ctx.saved_tensors
        batches, seqlen = q.shape[:2]
        grads = _backward(
            q, k, v, out, lse, dout, None, batches, seqlen, ctx.causal, ctx.softmax_scale
        )
        return *grads, None, None


class AttentionVarlenFunction(torch.autograd.Function):
    """`q` is (row, head, dim) with the rows of all sequences; `cu_seqlens` has their bounds."""

    @staticmethod
    def forward(ctx, q, k, v, cu_seqlens, max_seqlen, causal, softmax_scale):
        batches = cu_seqlens.shape[0] - 1
        out, lse = _forward(q, k, v, cu_seqlens, batches, max_seqlen, causal, softmax_scale)
        ctx.save_for_backward(q, k, v, out, lse, cu_seqlens)
        ctx.max_seqlen, ctx.causal, ctx.softmax_scale = max_seqlen, causal, softmax_scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, lse, cu_seqlens = ctx.saved_tensors
        batches = cu_seqlens.shape[0] - 1
        grads = _backward(
            q, k, v, out, lse, dout, cu_seqlens, batches, ctx.max_seqlen, ctx.causal,
            ctx.softmax_scale,
        )  # fmt: skip
        return *grads, None, None, None, None


def attention(q, k, v, causal=False, softmax_scale=None):
    """Attention of a batch of sequences of one length."""
    softmax_scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return AttentionFunction.apply(q, k, v, causal, softmax_scale)


def attention_varlen(q, k, v, cu_seqlens, max_seqlen, causal=False, softmax_scale=None):
    """Attention of packed sequences."""
    softmax_scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return AttentionVarlenFunction.apply(q, k, v, cu_seqlens, max_seqlen, causal, softmax_scale)

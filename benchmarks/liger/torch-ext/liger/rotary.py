"""Rotary position embeddings. The kernels overwrite what they rotate, so it is copied first."""

import torch

from ._ops import add_op_namespace_prefix, ops

_ROPE = add_op_namespace_prefix("rope")
_MROPE = add_op_namespace_prefix("qwen2vl_mrope")
_LLAMA4 = add_op_namespace_prefix("llama4_rope")


def _copies(q, k):
    return tuple(x.clone(memory_format=torch.contiguous_format) for x in (q, k))


def _like(q, k, *rest):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))


@torch.library.custom_op(
    _ROPE,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor cos, Tensor sin, bool backward) -> (Tensor, Tensor)",
)
def _rope(q, k, cos, sin, backward):
    q, k = _copies(q, k)
    ops.rope_(q, k, cos, sin, backward)
    return q, k


@torch.library.custom_op(
    _MROPE,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor cos, Tensor sin, int t, int h, bool backward) "
    "-> (Tensor, Tensor)",
)
def _qwen2vl_mrope(q, k, cos, sin, t, h, backward):
    q, k = _copies(q, k)
    ops.qwen2vl_mrope_(q, k, cos, sin, t, h, backward)
    return q, k


@torch.library.custom_op(
    _LLAMA4,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor freqs, float sign) -> (Tensor, Tensor)",
)
def _llama4_rope(q, k, freqs, sign):
    q, k = _copies(q, k)
    ops.llama4_rope_(q, k, freqs, sign)
    return q, k


for name in (_ROPE, _MROPE, _LLAMA4):
    torch.library.register_fake(name, _like)


def _save_rope(ctx, inputs, output):
    ctx.save_for_backward(inputs[2], inputs[3])
    ctx.backward = inputs[-1]
    ctx.section = inputs[4:-1]


def _rope_backward(ctx, dq, dk):
    return *_rope(dq, dk, *ctx.saved_tensors, not ctx.backward), None, None, None


def _mrope_backward(ctx, dq, dk):
    return *_qwen2vl_mrope(dq, dk, *ctx.saved_tensors, *ctx.section, not ctx.backward), *(
        5 * [None]
    )


def _save_llama4(ctx, inputs, output):
    ctx.save_for_backward(inputs[2])
    ctx.sign = inputs[3]


def _llama4_backward(ctx, dq, dk):
    return *_llama4_rope(dq, dk, *ctx.saved_tensors, -ctx.sign), None, None


torch.library.register_autograd(_ROPE, _rope_backward, setup_context=_save_rope)
torch.library.register_autograd(_MROPE, _mrope_backward, setup_context=_save_rope)
torch.library.register_autograd(_LLAMA4, _llama4_backward, setup_context=_save_llama4)


def rope(q, k, cos, sin):
    """Rotate ``q`` and ``k`` of shape (batch, heads, tokens, size).

    The angles have the shape (1 or batch, tokens, width).
    """
    q, k = _rope(q.transpose(1, 2), k.transpose(1, 2), cos.contiguous(), sin.contiguous(), False)
    return q.transpose(1, 2), k.transpose(1, 2)


def qwen2vl_mrope(q, k, cos, sin, mrope_section):
    """The same with angles of shape (3, batch, tokens, size): time, height, width."""
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    q, k = _qwen2vl_mrope(
        q, k, cos.contiguous(), sin.contiguous(), mrope_section[0], mrope_section[1], False
    )
    return q.transpose(1, 2), k.transpose(1, 2)


def llama4_rope(q, k, freqs_cis):
    """Multiply ``q`` and ``k`` of shape (batch, tokens, heads, size) by complex numbers."""
    return _llama4_rope(
        q, k, torch.view_as_real(freqs_cis.reshape(-1, freqs_cis.shape[-1])[: q.shape[1]]), 1.0
    )

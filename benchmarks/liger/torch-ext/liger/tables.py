"""Embedding and attention over residual blocks."""

import torch

from ._ops import add_op_namespace_prefix, ops


def _save_embedding(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _embedding_backward(ctx, grad):
    table, indices = ctx.saved_tensors
    return ops.embedding_backward(grad.contiguous(), indices, table), None


def _save_attn_res(ctx, inputs, output):
    ctx.save_for_backward(*inputs, *output[1:])


def _attn_res_backward(ctx, grad, *_):
    _, query, norm, *_ = ctx.saved_tensors
    blocks, grad_query, grad_norm = ops.attn_res_backward(grad.contiguous(), *ctx.saved_tensors)
    return blocks, grad_query.to(query.dtype), grad_norm.to(norm.dtype)


torch.library.register_autograd(
    add_op_namespace_prefix("embedding_forward"), _embedding_backward, setup_context=_save_embedding
)
torch.library.register_autograd(
    add_op_namespace_prefix("attn_res_forward"), _attn_res_backward, setup_context=_save_attn_res
)


def embedding(table, indices):
    """Rows of a table."""
    rows = ops.embedding_forward(table.contiguous(), indices.contiguous().view(-1))
    return rows.view(*indices.shape, -1)


def attn_res(blocks, w_query, w_norm):
    """Attention over depth: blocks of shape (N, ..., D), whose norms have an epsilon of 1e-6."""
    flat = blocks.contiguous().view(blocks.shape[0], -1, blocks.shape[-1])
    return ops.attn_res_forward(flat, w_query.contiguous(), w_norm.contiguous())[0].view(
        blocks.shape[1:]
    )

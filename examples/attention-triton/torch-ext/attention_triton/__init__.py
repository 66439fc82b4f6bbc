"""Normalisation and attention, captured from Python that launches Triton kernels."""

from __future__ import annotations

import torch

from . import _captured

__all__ = ["attention", "attention_varlen", "rms_norm"]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Divide rows by their root mean square, and multiply them by ``weight``.

    Args:
        x: A tensor of float16, bfloat16 or float32 on a GPU, with two to four dimensions; rows are
            its last dimension, of 16 to 8192 elements.
        weight: As many elements as a row has, of the same dtype.
        eps: Added to the mean square.

    Returns:
        A new tensor with the shape and dtype of ``x``.
    """
    return _captured.rms_norm(x, weight, eps)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """Attention of a batch of sequences of one length.

    Args:
        q: (batch, row, head, dim) of float16 or bfloat16 on a GPU; 64 or 128 elements per head,
            which lie side by side. Other dimensions may have any strides.
        k: (batch, row, head, dim); its heads may be fewer, each shared by as many heads of ``q``.
        v: As ``k``.
        causal: Whether a row sees only rows up to its own.
        softmax_scale: A factor of the scores, above 0; by default ``dim ** -0.5``.

    Returns:
        A new tensor with the shape and dtype of ``q``.
    """
    return _captured.attention(q, k, v, causal, _scale(q, softmax_scale))


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """Attention of packed sequences, which do not see one another.

    Args:
        q: (row, head, dim) with the rows of all sequences, else as for :func:`attention`.
        k: (row, head, dim).
        v: As ``k``.
        cu_seqlens: int32 on the same GPU, one more than there are sequences: where each of them
            begins, and the end of the last. Sequences may be empty.
        max_seqlen: The length of the longest sequence. Rows behind it are not computed.
        causal: Whether a row sees only rows up to its own.
        softmax_scale: A factor of the scores, above 0; by default ``dim ** -0.5``.

    Returns:
        A new tensor with the shape and dtype of ``q``.
    """
    return _captured.attention_varlen(
        q, k, v, cu_seqlens, max_seqlen, causal, _scale(q, softmax_scale)
    )


def _scale(q: torch.Tensor, softmax_scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale

"""What the kernels of attention have in common: sequences, strides, constants."""

import triton
import triton.language as tl

HEAD_DIMS = (64, 128)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def find_sequence(cu_seqlens, batch, seqlen, VARLEN: tl.constexpr):
    """The first row of a sequence, and its length."""
    if VARLEN:
        start = tl.load(cu_seqlens + batch).to(tl.int64)
        length = (tl.load(cu_seqlens + batch + 1) - start).to(tl.int32)
    else:
        start = tl.zeros([], dtype=tl.int64)
        length = seqlen
    return start, length


def check(q, k, v):
    """Raise an error for tensors that the kernels cannot read."""
    heads, head_dim = q.shape[-2:]
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"the head size is {head_dim}, and not one of {HEAD_DIMS}")
    if heads % k.shape[-2] != 0:
        raise ValueError(f"{heads} heads of q cannot share {k.shape[-2]} heads of k")
    if q.stride(-1) != 1 or k.stride(-1) != 1 or v.stride(-1) != 1:
        raise ValueError("the last dimension of q, k and v has to be contiguous")


def strides_of(x):
    """The strides of batches, rows and heads; packed sequences have no batches."""
    return 0 if x.dim() == 3 else x.stride(0), x.stride(-3), x.stride(-2)


def row_strides_of(lse):
    """The strides of batches and heads of a number for each row."""
    return 0 if lse.dim() == 2 else lse.stride(0), lse.stride(-2)

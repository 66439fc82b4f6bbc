"""The forward pass on every GPU."""

import triton
import triton.language as tl

from .sequences import LOG2_E, find_sequence, strides_of


@triton.jit
def _attend(
    acc,
    highest,
    total,
    query,
    k,
    v,
    rows,
    begin,
    end,
    length,
    scale,
    stride_ks,
    stride_vs,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Continue the softmax of a block of queries over the keys from `begin` to `end`."""
    offsets, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD_DIM)
    key_offsets = offsets[None, :] * stride_ks + dims[:, None]
    value_offsets = offsets[:, None] * stride_vs + dims[None, :]
    for first in range(begin, end, BLOCK_N):
        keys = first + offsets
        key_places = k + tl.cast(first, tl.int64) * stride_ks + key_offsets
        value_places = v + tl.cast(first, tl.int64) * stride_vs + value_offsets
        if MASKED:
            inside = keys < length
            key = tl.load(key_places, mask=inside[None, :], other=0.0)
            value = tl.load(value_places, mask=inside[:, None], other=0.0)
        else:
            key = tl.load(key_places)
            value = tl.load(value_places)
        scores = tl.dot(query, key)
        if MASKED:
            seen = inside[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(value.dtype), value, acc * rescale[:, None])
        highest = new_highest
    return acc, highest, total


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, num_stages=2),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3),
    ],
    key=["HEAD_DIM", "CAUSAL"],
)
@triton.jit(do_not_specialize=["seqlen"])
def _attention_forward(
    q,
    k,
    v,
    out,
    lse,
    cu_seqlens,
    stride_qb,
    stride_qs,
    stride_qh,
    stride_kb,
    stride_ks,
    stride_kh,
    stride_vb,
    stride_vs,
    stride_vh,
    stride_ob,
    stride_os,
    stride_oh,
    stride_lb,
    stride_lh,
    seqlen,
    heads,
    group,
    softmax_scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # The last rows of a causal sequence have the most keys: they begin first.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    start, length = find_sequence(cu_seqlens, batch, seqlen, VARLEN)
    if block * BLOCK_M >= length:
        return
    first = start + block * BLOCK_M
    q += batch * stride_qb + first * stride_qs + head * stride_qh
    k += batch * stride_kb + start * stride_ks + head // group * stride_kh
    v += batch * stride_vb + start * stride_vs + head // group * stride_vh
    out += batch * stride_ob + first * stride_os + head * stride_oh
    lse += batch * stride_lb + head * stride_lh + first

    offsets, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    rows = block * BLOCK_M + offsets
    inside = rows < length
    query_places = q + offsets[:, None] * stride_qs + dims[None, :]
    query = tl.load(query_places, mask=inside[:, None], other=0.0)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    highest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    scale = softmax_scale * LOG2_E
    if CAUSAL:
        end = min(length, (block + 1) * BLOCK_M)
        unmasked = block * BLOCK_M // BLOCK_N * BLOCK_N
    else:
        end = length
        unmasked = length // BLOCK_N * BLOCK_N
    acc, highest, total = _attend(
        acc, highest, total, query, k, v, rows, 0, unmasked, length, scale, stride_ks, stride_vs,
        HEAD_DIM, CAUSAL, False, BLOCK_N,
    )  # fmt: skip
    acc, highest, total = _attend(
        acc, highest, total, query, k, v, rows, unmasked, end, length, scale, stride_ks, stride_vs,
        HEAD_DIM, CAUSAL, True, BLOCK_N,
    )  # fmt: skip
    acc = acc / total[:, None]
    tl.store(lse + offsets, highest + tl.log2(total), mask=inside)
    out_places = out + offsets[:, None] * stride_os + dims[None, :]
    tl.store(out_places, acc.to(out.dtype.element_ty), mask=inside[:, None])


def forward(q, k, v, out, lse, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """Write `out`, and the logarithms, to the base of 2, of the sums of its softmax."""
    heads, head_dim = q.shape[-2:]

    def grid(meta):
        return triton.cdiv(seqlen, meta["BLOCK_M"]), batches * heads

    _attention_forward[grid](
        q,
        k,
        v,
        out,
        lse,
        cu_seqlens,
        *strides_of(q),
        *strides_of(k),
        *strides_of(v),
        *strides_of(out),
        0 if cu_seqlens is not None else lse.stride(0),
        lse.stride(-2),
        seqlen,
        heads,
        heads // k.shape[-2],
        softmax_scale,
        HEAD_DIM=head_dim,
        CAUSAL=causal,
        VARLEN=cu_seqlens is not None,
    )

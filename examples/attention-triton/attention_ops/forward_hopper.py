"""The forward pass on Hopper, whose hardware copies blocks of keys and values (TMA).

Heads of 64 have a kernel in Triton. Those of 128 have one in Gluon: one warp copies, and two groups
of four warps have 64 rows of queries each. They take turns: while one multiplies matrices, the
other computes its softmax.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .hopper import ROWS, descriptor_of, make_barriers
from .sequences import LOG2_E, find_sequence, strides_of

BLOCK_N = gl.constexpr(128)
"""Keys and values that are copied at once."""
STAGES = gl.constexpr(2)
"""Blocks of keys, and of values, that shared memory holds."""


@gluon.jit
def _copy(queries, keys, values, buffers, bars, batch, head, kv_head, first, blocks):
    """One warp: copy 128 queries, and the blocks of keys and values, the last of them first."""
    query_buffer, key_buffer, value_buffer = buffers
    query_full, key_full, value_full, key_empty, value_empty, _ = bars
    for group in gl.static_range(2):
        bar = query_full.index(group)
        mbarrier.expect(bar, queries.block_type.nbytes)
        rows = [batch, first + ROWS * group, head, 0]
        tma.async_load(queries, rows, bar, query_buffer.index(group))
    for block in range(blocks):
        stage = block % STAGES
        phase = (block // STAGES) & 1
        rows = [batch, (blocks - 1 - block) * BLOCK_N, kv_head, 0]
        mbarrier.wait(key_empty.index(stage), phase ^ 1)
        mbarrier.expect(key_full.index(stage), keys.block_type.nbytes)
        tma.async_load(keys, rows, key_full.index(stage), key_buffer.index(stage))
        mbarrier.wait(value_empty.index(stage), phase ^ 1)
        mbarrier.expect(value_full.index(stage), values.block_type.nbytes)
        tma.async_load(values, rows, value_full.index(stage), value_buffer.index(stage))


@gluon.jit
def _attend_blocks(  # noqa: PLR0915 - one pipeline
    out, lse, stride_os, buffers, bars, first, blocks, length, scale,
    CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Four warps: the softmax of 64 rows of queries over all blocks."""
    query_buffer, key_buffer, value_buffer = buffers
    query_full, key_full, value_full, key_empty, value_empty, turn = bars
    dtype: gl.constexpr = query_buffer.dtype
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    weight_layout: gl.constexpr = gl.DotOperandLayout(0, out_layout, k_width=2)
    first += ROWS * GROUP
    rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, score_layout))
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, score_layout)
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, out_layout)
    query = query_buffer.index(GROUP).reshape([ROWS, HEAD_DIM])

    mbarrier.wait(query_full.index(GROUP), 0)
    mbarrier.wait(key_full.index(0), 0)
    mbarrier.wait(turn.index(GROUP), 0)
    key = key_buffer.index(0).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
    scores = warpgroup_mma(query, key, zeros, use_acc=False, is_async=True)
    mbarrier.arrive(turn.index(1 - GROUP), count=1)
    scores = warpgroup_mma_wait(0, deps=[scores])
    mbarrier.arrive(key_empty.index(0), count=1)
    # The last block is the only one that not all rows see as a whole.
    keys = (blocks - 1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, score_layout))
    seen = keys[None, :] < length
    if CAUSAL:
        seen = seen & (keys[None, :] <= rows[:, None])
    scores = gl.where(seen, scores, float("-inf"))
    highest = gl.max(scores, axis=1) * scale
    weights = gl.exp2(scores * scale - highest[:, None])
    total = gl.sum(weights, axis=1)
    weights_16 = gl.convert_layout(weights.to(dtype), weight_layout)
    for block in range(1, blocks):
        stage = block % STAGES
        before = (block - 1) % STAGES
        mbarrier.wait(key_full.index(stage), (block // STAGES) & 1)
        mbarrier.wait(value_full.index(before), ((block - 1) // STAGES) & 1)
        mbarrier.wait(turn.index(GROUP), block & 1)
        key = key_buffer.index(stage).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
        value = value_buffer.index(before).reshape([BLOCK_N, HEAD_DIM])
        new_scores = warpgroup_mma(query, key, zeros, use_acc=False, is_async=True)
        new_acc = warpgroup_mma(weights_16, value, acc, is_async=True)
        mbarrier.arrive(turn.index(1 - GROUP), count=1)
        scores = warpgroup_mma_wait(1, deps=[new_scores])
        mbarrier.arrive(key_empty.index(stage), count=1)
        new_highest = gl.maximum(highest, gl.max(scores, axis=1) * scale)
        rescale = gl.exp2(highest - new_highest)
        weights = gl.exp2(scores * scale - new_highest[:, None])
        total = total * rescale + gl.sum(weights, axis=1)
        highest = new_highest
        acc = warpgroup_mma_wait(0, deps=[new_acc])
        mbarrier.arrive(value_empty.index(before), count=1)
        weights_16 = gl.convert_layout(weights.to(dtype), weight_layout)
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, out_layout))[:, None]
    last = (blocks - 1) % STAGES
    mbarrier.wait(value_full.index(last), ((blocks - 1) // STAGES) & 1)
    value = value_buffer.index(last).reshape([BLOCK_N, HEAD_DIM])
    acc = warpgroup_mma(weights_16, value, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    gl.store(lse + rows, highest + gl.log2(total), mask=rows < length)
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, out_layout))[:, None]
    own = GROUP * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, out_layout))
    dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, out_layout))
    inside = first - GROUP * ROWS + own < length
    places = out + own[:, None] * stride_os + dims[None, :]
    gl.store(places, acc.to(dtype), mask=inside[:, None])


@gluon.jit
def _attend_queries(
    queries, keys, values, batch, head, kv_head, out, lse, stride_os, first, length, softmax_scale,
    CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr,
):  # fmt: skip
    """The attention of 128 rows of queries."""
    blocks = gl.cdiv(length, BLOCK_N)
    if CAUSAL:
        blocks = gl.minimum(blocks, gl.cdiv(first + 2 * ROWS, BLOCK_N))
    dtype: gl.constexpr = queries.dtype
    query_block: gl.constexpr = [2, 1, ROWS, 1, HEAD_DIM]
    key_block: gl.constexpr = [STAGES, 1, BLOCK_N, 1, HEAD_DIM]
    query_buffer = gl.allocate_shared_memory(dtype, query_block, queries.layout)
    key_buffer = gl.allocate_shared_memory(dtype, key_block, keys.layout)
    value_buffer = gl.allocate_shared_memory(dtype, key_block, values.layout)
    query_full = make_barriers(2, 1)
    turn = make_barriers(2, 1)
    key_full = make_barriers(STAGES, 1)
    value_full = make_barriers(STAGES, 1)
    key_empty = make_barriers(STAGES, 2)
    value_empty = make_barriers(STAGES, 2)
    fence_async_shared()
    mbarrier.arrive(turn.index(0), count=1)
    buffers = (query_buffer, key_buffer, value_buffer)
    bars = (query_full, key_full, value_full, key_empty, value_empty, turn)
    scale = softmax_scale * LOG2_E
    gl.warp_specialize(
        [
            (_attend_blocks, (out, lse, stride_os, buffers, bars, first, blocks, length, scale,
                              CAUSAL, HEAD_DIM, 0)),
            (_attend_blocks, (out, lse, stride_os, buffers, bars, first, blocks, length, scale,
                              CAUSAL, HEAD_DIM, 1)),
            (_copy, (queries, keys, values, buffers, bars, batch, head, kv_head, first, blocks)),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


@gluon.jit(do_not_specialize=["seqlen"])
def _attention_forward_hopper(
    queries, keys, values, out, lse, stride_ob, stride_os, stride_oh, stride_lb, stride_lh,
    seqlen, heads, group, softmax_scale, HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    # The last rows of a causal sequence have the most keys: they begin first.
    first = (gl.num_programs(0) - 1 - gl.program_id(0)) * (2 * ROWS)
    batch = gl.program_id(1) // heads
    head = gl.program_id(1) % heads
    out += batch.to(gl.int64) * stride_ob + first.to(gl.int64) * stride_os + head * stride_oh
    lse += batch.to(gl.int64) * stride_lb + head.to(gl.int64) * stride_lh
    _attend_queries(
        queries, keys, values, batch, head, head // group, out, lse, stride_os, first, seqlen,
        softmax_scale, CAUSAL, HEAD_DIM,
    )  # fmt: skip


@gluon.jit
def _describe(x, length, stride, head_stride, BLOCK: gl.constexpr, HEAD_DIM: gl.constexpr):
    """A descriptor of one sequence, so that no other is read."""
    block: gl.constexpr = [1, BLOCK, 1, HEAD_DIM]
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for(block, x.dtype.element_ty)
    shape = [1, length, 1, HEAD_DIM]
    return tma.make_tensor_descriptor(x, shape, [stride, stride, head_stride, 1], block, layout)


@gluon.jit(do_not_specialize=["seqlen"])
def _attention_forward_hopper_varlen(
    q, k, v, out, lse, cu_seqlens, stride_qs, stride_qh, stride_ks, stride_kh, stride_vs,
    stride_vh, stride_os, stride_oh, stride_lh, seqlen, heads, group, softmax_scale,
    HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    first = (gl.num_programs(0) - 1 - gl.program_id(0)) * (2 * ROWS)
    sequence = gl.program_id(1) // heads
    head = (gl.program_id(1) % heads).to(gl.int64)
    start = gl.load(cu_seqlens + sequence).to(gl.int64)
    length = (gl.load(cu_seqlens + sequence + 1) - start).to(gl.int32)
    if first < length:
        q += start * stride_qs + head * stride_qh
        k += start * stride_ks + head // group * stride_kh
        v += start * stride_vs + head // group * stride_vh
        out += (start + first) * stride_os + head * stride_oh
        lse += head * stride_lh + start
        queries = _describe(q, length, stride_qs, stride_qh, ROWS, HEAD_DIM)
        keys = _describe(k, length, stride_ks, stride_kh, BLOCK_N, HEAD_DIM)
        values = _describe(v, length, stride_vs, stride_vh, BLOCK_N, HEAD_DIM)
        _attend_queries(
            queries, keys, values, 0, 0, 0, out, lse, stride_os, first, length, softmax_scale,
            CAUSAL, HEAD_DIM,
        )  # fmt: skip


@triton.jit
def _attend_described(
    acc, highest, total, query, keys, values, rows, begin, end, length, scale,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Continue the softmax of a block of queries over the keys from `begin` to `end`."""
    for first in range(begin, end, BLOCK_N):
        scores = tl.dot(query, keys.load([first, 0]).T)
        if MASKED:
            columns = first + tl.arange(0, BLOCK_N)
            seen = columns[None, :] < length
            if CAUSAL:
                seen = seen & (columns[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        new_highest = tl.maximum(highest, tl.max(scores, axis=1) * scale)
        weights = tl.exp2(scores * scale - new_highest[:, None])
        rescale = tl.exp2(highest - new_highest)
        total = total * rescale + tl.sum(weights, axis=1)
        value = values.load([first, 0])
        acc = tl.dot(weights.to(value.dtype), value, acc * rescale[:, None])
        highest = new_highest
    return acc, highest, total


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_warps=8, num_stages=2),
    ],
    key=["CAUSAL"],
)
@triton.jit(do_not_specialize=["seqlen"])
def _attention_forward_described(
    q, k, v, out, lse, cu_seqlens,
    stride_qb, stride_qs, stride_qh, stride_kb, stride_ks, stride_kh,
    stride_vb, stride_vs, stride_vh, stride_ob, stride_os, stride_oh, stride_lb, stride_lh,
    seqlen, heads, group, softmax_scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, VARLEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    start, length = find_sequence(cu_seqlens, batch, seqlen, VARLEN)
    if block * BLOCK_M >= length:
        return
    first = block * BLOCK_M
    q += batch * stride_qb + start * stride_qs + head * stride_qh
    k += batch * stride_kb + start * stride_ks + head // group * stride_kh
    v += batch * stride_vb + start * stride_vs + head // group * stride_vh
    out += batch * stride_ob + (start + first) * stride_os + head * stride_oh
    lse += batch * stride_lb + head * stride_lh + start + first
    # Descriptors of this sequence alone: no other one is read.
    shape = [length, HEAD_DIM]
    queries = tl.make_tensor_descriptor(q, shape, [stride_qs, 1], [BLOCK_M, HEAD_DIM])
    keys = tl.make_tensor_descriptor(k, shape, [stride_ks, 1], [BLOCK_N, HEAD_DIM])
    values = tl.make_tensor_descriptor(v, shape, [stride_vs, 1], [BLOCK_N, HEAD_DIM])
    offsets, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    rows = first + offsets
    inside = rows < length
    query = queries.load([first, 0])
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    highest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    scale = softmax_scale * LOG2_E
    if CAUSAL:
        end = min(length, first + BLOCK_M)
        unmasked = first // BLOCK_N * BLOCK_N
    else:
        end = length
        unmasked = length // BLOCK_N * BLOCK_N
    acc, highest, total = _attend_described(
        acc, highest, total, query, keys, values, rows, 0, unmasked, length, scale,
        CAUSAL, False, BLOCK_N,
    )  # fmt: skip
    acc, highest, total = _attend_described(
        acc, highest, total, query, keys, values, rows, unmasked, end, length, scale,
        CAUSAL, True, BLOCK_N,
    )  # fmt: skip
    acc = acc / total[:, None]
    tl.store(lse + offsets, highest + tl.log2(total), mask=inside)
    places = out + offsets[:, None] * stride_os + dims[None, :]
    tl.store(places, acc.to(out.dtype.element_ty), mask=inside[:, None])


def forward(q, k, v, out, lse, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """As `forward.forward`, on tensors for which `can_run` holds."""
    heads, head_dim = q.shape[-2:]
    group = heads // k.shape[-2]
    # Memory for the descriptors that kernels make.
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=q.device))
    if head_dim == 64:

        def grid(meta):
            return triton.cdiv(seqlen, meta["BLOCK_M"]), batches * heads

        _attention_forward_described[grid](
            q, k, v, out, lse, cu_seqlens,
            *strides_of(q), *strides_of(k), *strides_of(v), *strides_of(out),
            0 if cu_seqlens is not None else lse.stride(0), lse.stride(-2),
            seqlen, heads, group, softmax_scale,
            HEAD_DIM=64, CAUSAL=causal, VARLEN=cu_seqlens is not None,
        )  # fmt: skip
        return
    grid = triton.cdiv(seqlen, 128), batches * heads
    if cu_seqlens is None:
        _attention_forward_hopper[grid](
            descriptor_of(q, 64), descriptor_of(k, 128), descriptor_of(v, 128), out, lse,
            *strides_of(out), lse.stride(0), lse.stride(1), seqlen, heads, group, softmax_scale,
            HEAD_DIM=128, CAUSAL=causal,
        )  # fmt: skip
    else:
        _attention_forward_hopper_varlen[grid](
            q, k, v, out, lse, cu_seqlens,
            *strides_of(q)[1:], *strides_of(k)[1:], *strides_of(v)[1:], *strides_of(out)[1:],
            lse.stride(0), seqlen, heads, group, softmax_scale, HEAD_DIM=128, CAUSAL=causal,
        )  # fmt: skip

"""The backward pass on Hopper, in Gluon: as in `forward_hopper`, one warp copies for two groups.

Rows beyond the end are zeros, since the hardware fills blocks with them. Nothing is added with
atomics, so that results are the same in every call.
"""

import triton
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
from .sequences import LOG2_E, row_strides_of, strides_of


@gluon.jit
def _copy_queries(
    queries, keys, values, grads, buffers, bars, batch, kv_head, group, first, begin, end,
    BLOCK_M: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One warp: copy 128 keys and values, and the blocks of queries that attend to them."""
    query_buffer, key_buffer, value_buffer, grad_buffer = buffers
    key_full, query_full, grad_full, query_empty, grad_empty = bars
    for warps in gl.static_range(2):
        bar = key_full.index(warps)
        mbarrier.expect(bar, keys.block_type.nbytes + values.block_type.nbytes)
        rows = [batch, first + ROWS * warps, kv_head, 0]
        tma.async_load(keys, rows, bar, key_buffer.index(warps))
        tma.async_load(values, rows, bar, value_buffer.index(warps))
    step = 0
    for member in range(group):
        for block in range(begin, end):
            stage = step % STAGES
            phase = (step // STAGES) & 1
            rows = [batch, block * BLOCK_M, kv_head * group + member, 0]
            mbarrier.wait(query_empty.index(stage), phase ^ 1)
            mbarrier.expect(query_full.index(stage), queries.block_type.nbytes)
            tma.async_load(queries, rows, query_full.index(stage), query_buffer.index(stage))
            mbarrier.wait(grad_empty.index(stage), phase ^ 1)
            mbarrier.expect(grad_full.index(stage), grads.block_type.nbytes)
            tma.async_load(grads, rows, grad_full.index(stage), grad_buffer.index(stage))
            step += 1


@gluon.jit
def _add_queries(  # noqa: PLR0915 - one pipeline
    dk, dv, lse, delta, stride_ds, stride_lh, buffers, bars, group, first, begin, end, length,
    scale, softmax_scale, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr,
    HEAD_DIM: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Four warps: what all queries give to the gradients of 64 keys and values."""
    query_buffer, key_buffer, value_buffer, grad_buffer = buffers
    key_full, query_full, grad_full, query_empty, grad_empty = bars
    dtype: gl.constexpr = query_buffer.dtype
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    weight_layout: gl.constexpr = gl.DotOperandLayout(0, sum_layout, k_width=2)
    first += ROWS * WARPS
    keys = first + gl.arange(0, ROWS, gl.SliceLayout(1, score_layout))
    columns = gl.arange(0, BLOCK_M, gl.SliceLayout(0, score_layout))
    key = key_buffer.index(WARPS).reshape([ROWS, HEAD_DIM])
    value = value_buffer.index(WARPS).reshape([ROWS, HEAD_DIM])
    zeros = gl.zeros([ROWS, BLOCK_M], gl.float32, score_layout)
    dkey = gl.zeros([ROWS, HEAD_DIM], gl.float32, sum_layout)
    dvalue = gl.zeros([ROWS, HEAD_DIM], gl.float32, sum_layout)
    mbarrier.wait(key_full.index(WARPS), 0)
    step = 0
    for member in range(group):  # noqa: B007 - Triton knows no `_` of two types
        for block in range(begin, end):
            stage = step % STAGES
            phase = (step // STAGES) & 1
            rows = block * BLOCK_M + columns
            inside = rows < length
            # What is subtracted, and the mask, are where the products begin: that needs 32
            # registers less per thread than to subtract it from them.
            row_lse = gl.load(lse + rows, mask=inside, other=0.0) * (-1.0 / scale)
            row_delta = -gl.load(delta + rows, mask=inside, other=0.0)
            _, scores = gl.broadcast(zeros, row_lse[None, :])
            _, dweights = gl.broadcast(zeros, row_delta[None, :])
            if CAUSAL:
                scores = gl.where(keys[:, None] <= rows[None, :], scores, float("-inf"))
            query = query_buffer.index(stage).reshape([BLOCK_M, HEAD_DIM])
            grad = grad_buffer.index(stage).reshape([BLOCK_M, HEAD_DIM])
            mbarrier.wait(query_full.index(stage), phase)
            scores = warpgroup_mma(key, query.permute((1, 0)), scores, is_async=True)
            mbarrier.wait(grad_full.index(stage), phase)
            dweights = warpgroup_mma(value, grad.permute((1, 0)), dweights, is_async=True)
            scores = warpgroup_mma_wait(1, deps=[scores])
            weights = gl.exp2(scores * scale)
            weights_16 = gl.convert_layout(weights.to(dtype), weight_layout)
            dweights = warpgroup_mma_wait(0, deps=[dweights])
            dvalue = warpgroup_mma(weights_16, grad, dvalue, is_async=True)
            dscores = gl.convert_layout((weights * dweights).to(dtype), weight_layout)
            dkey = warpgroup_mma(dscores, query, dkey, is_async=True)
            dvalue = warpgroup_mma_wait(1, deps=[dvalue])
            mbarrier.arrive(grad_empty.index(stage), count=1)
            dkey = warpgroup_mma_wait(0, deps=[dkey])
            mbarrier.arrive(query_empty.index(stage), count=1)
            step += 1
        lse += stride_lh
        delta += stride_lh
    own = ROWS * WARPS + gl.arange(0, ROWS, gl.SliceLayout(1, sum_layout))
    dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, sum_layout))
    places = own[:, None] * stride_ds + dims[None, :]
    inside = (first - ROWS * WARPS + own < length)[:, None]
    gl.store(dk + places, (dkey * softmax_scale).to(dtype), mask=inside)
    gl.store(dv + places, dvalue.to(dtype), mask=inside)


@gluon.jit(do_not_specialize=["seqlen"])
def _attention_dk_dv_hopper(
    queries, keys, values, grads, lse, delta, dk, dv, stride_db, stride_ds, stride_dh,
    stride_lb, stride_lh, seqlen, kv_heads, group, softmax_scale, HEAD_DIM: gl.constexpr,
    CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = queries.dtype
    first = gl.program_id(0) * (2 * ROWS)
    batch = gl.program_id(1) // kv_heads
    kv_head = gl.program_id(1) % kv_heads
    offset = batch.to(gl.int64) * stride_db + first.to(gl.int64) * stride_ds + kv_head * stride_dh
    row = batch.to(gl.int64) * stride_lb + (kv_head * group).to(gl.int64) * stride_lh
    begin = 0
    if CAUSAL:
        begin = first // BLOCK_M
    end = gl.cdiv(seqlen, BLOCK_M)
    query_block: gl.constexpr = [STAGES, 1, BLOCK_M, 1, HEAD_DIM]
    key_block: gl.constexpr = [2, 1, ROWS, 1, HEAD_DIM]
    buffers = (
        gl.allocate_shared_memory(dtype, query_block, queries.layout),
        gl.allocate_shared_memory(dtype, key_block, keys.layout),
        gl.allocate_shared_memory(dtype, key_block, values.layout),
        gl.allocate_shared_memory(dtype, query_block, grads.layout),
    )
    bars = (
        make_barriers(2, 1),
        make_barriers(STAGES, 1),
        make_barriers(STAGES, 1),
        make_barriers(STAGES, 2),
        make_barriers(STAGES, 2),
    )
    fence_async_shared()
    scale = softmax_scale * LOG2_E
    gl.warp_specialize(
        [
            (_add_queries, (dk + offset, dv + offset, lse + row, delta + row, stride_ds, stride_lh,
                            buffers, bars, group, first, begin, end, seqlen, scale, softmax_scale,
                            CAUSAL, BLOCK_M, STAGES, HEAD_DIM, 0)),
            (_add_queries, (dk + offset, dv + offset, lse + row, delta + row, stride_ds, stride_lh,
                            buffers, bars, group, first, begin, end, seqlen, scale, softmax_scale,
                            CAUSAL, BLOCK_M, STAGES, HEAD_DIM, 1)),
            (_copy_queries, (queries, keys, values, grads, buffers, bars, batch, kv_head, group,
                             first, begin, end, BLOCK_M, STAGES)),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


@gluon.jit
def _copy_keys(
    queries, keys, values, grads, buffers, bars, batch, head, kv_head, first, blocks,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One warp: copy 128 queries, and the blocks of keys and values, the last of them first."""
    query_buffer, key_buffer, value_buffer, grad_buffer = buffers
    query_full, key_full, value_full, key_empty, value_empty = bars
    for warps in gl.static_range(2):
        bar = query_full.index(warps)
        mbarrier.expect(bar, queries.block_type.nbytes + grads.block_type.nbytes)
        rows = [batch, first + ROWS * warps, head, 0]
        tma.async_load(queries, rows, bar, query_buffer.index(warps))
        tma.async_load(grads, rows, bar, grad_buffer.index(warps))
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
def _add_keys(
    dq, lse, delta, stride_ds, buffers, bars, first, blocks, length, scale, softmax_scale,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, HEAD_DIM: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Four warps: what all keys give to the gradients of 64 queries."""
    query_buffer, key_buffer, value_buffer, grad_buffer = buffers
    query_full, key_full, value_full, key_empty, value_empty = bars
    dtype: gl.constexpr = query_buffer.dtype
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    weight_layout: gl.constexpr = gl.DotOperandLayout(0, sum_layout, k_width=2)
    first += ROWS * WARPS
    rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, score_layout))
    columns = gl.arange(0, BLOCK_N, gl.SliceLayout(0, score_layout))
    inside = rows < length
    row_lse = gl.load(lse + rows, mask=inside, other=0.0)
    row_delta = gl.load(delta + rows, mask=inside, other=0.0)
    query = query_buffer.index(WARPS).reshape([ROWS, HEAD_DIM])
    grad = grad_buffer.index(WARPS).reshape([ROWS, HEAD_DIM])
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, score_layout)
    dquery = gl.zeros([ROWS, HEAD_DIM], gl.float32, sum_layout)
    mbarrier.wait(query_full.index(WARPS), 0)
    for block in range(blocks):
        stage = block % STAGES
        phase = (block // STAGES) & 1
        key = key_buffer.index(stage).reshape([BLOCK_N, HEAD_DIM])
        value = value_buffer.index(stage).reshape([BLOCK_N, HEAD_DIM])
        mbarrier.wait(key_full.index(stage), phase)
        scores = warpgroup_mma(query, key.permute((1, 0)), zeros, use_acc=False, is_async=True)
        mbarrier.wait(value_full.index(stage), phase)
        dweights = warpgroup_mma(grad, value.permute((1, 0)), zeros, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(1, deps=[scores])
        weights = gl.exp2(scores * scale - row_lse[:, None])
        # The weights of zeros beyond the end may be infinite, and infinity times 0 is no number.
        keys = (blocks - 1 - block) * BLOCK_N + columns
        seen = keys[None, :] <= rows[:, None] if CAUSAL else keys[None, :] < length
        weights = gl.where(seen, weights, 0.0)
        dweights = warpgroup_mma_wait(0, deps=[dweights])
        mbarrier.arrive(value_empty.index(stage), count=1)
        dscores = weights * (dweights - row_delta[:, None])
        dscores_16 = gl.convert_layout(dscores.to(dtype), weight_layout)
        dquery = warpgroup_mma(dscores_16, key, dquery, is_async=True)
        dquery = warpgroup_mma_wait(0, deps=[dquery])
        mbarrier.arrive(key_empty.index(stage), count=1)
    own = ROWS * WARPS + gl.arange(0, ROWS, gl.SliceLayout(1, sum_layout))
    dims = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, sum_layout))
    places = dq + own[:, None] * stride_ds + dims[None, :]
    inside = (first - ROWS * WARPS + own < length)[:, None]
    gl.store(places, (dquery * softmax_scale).to(dtype), mask=inside)


@gluon.jit(do_not_specialize=["seqlen"])
def _attention_dq_hopper(
    queries, keys, values, grads, lse, delta, dq, stride_db, stride_ds, stride_dh,
    stride_lb, stride_lh, seqlen, heads, group, softmax_scale, HEAD_DIM: gl.constexpr,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = queries.dtype
    first = (gl.num_programs(0) - 1 - gl.program_id(0)) * (2 * ROWS)
    batch = gl.program_id(1) // heads
    head = gl.program_id(1) % heads
    offset = batch.to(gl.int64) * stride_db + first.to(gl.int64) * stride_ds + head * stride_dh
    row = batch.to(gl.int64) * stride_lb + head.to(gl.int64) * stride_lh
    blocks = gl.cdiv(seqlen, BLOCK_N)
    if CAUSAL:
        blocks = gl.minimum(blocks, gl.cdiv(first + 2 * ROWS, BLOCK_N))
    query_block: gl.constexpr = [2, 1, ROWS, 1, HEAD_DIM]
    key_block: gl.constexpr = [STAGES, 1, BLOCK_N, 1, HEAD_DIM]
    buffers = (
        gl.allocate_shared_memory(dtype, query_block, queries.layout),
        gl.allocate_shared_memory(dtype, key_block, keys.layout),
        gl.allocate_shared_memory(dtype, key_block, values.layout),
        gl.allocate_shared_memory(dtype, query_block, grads.layout),
    )
    bars = (
        make_barriers(2, 1),
        make_barriers(STAGES, 1),
        make_barriers(STAGES, 1),
        make_barriers(STAGES, 2),
        make_barriers(STAGES, 2),
    )
    fence_async_shared()
    scale = softmax_scale * LOG2_E
    gl.warp_specialize(
        [
            (_add_keys, (dq + offset, lse + row, delta + row, stride_ds, buffers, bars, first,
                         blocks, seqlen, scale, softmax_scale, CAUSAL, BLOCK_N, STAGES, HEAD_DIM,
                         0)),
            (_add_keys, (dq + offset, lse + row, delta + row, stride_ds, buffers, bars, first,
                         blocks, seqlen, scale, softmax_scale, CAUSAL, BLOCK_N, STAGES, HEAD_DIM,
                         1)),
            (_copy_keys, (queries, keys, values, grads, buffers, bars, batch, head, head // group,
                          first, blocks, BLOCK_N, STAGES)),
        ],
        worker_num_warps=[4, 1],
        worker_num_regs=[240, 24],
    )  # fmt: skip


def backward(q, k, v, dout, lse, delta, dq, dk, dv, batches, seqlen, causal, softmax_scale):
    """As `backward.backward`, for batches of one length for which `can_run` holds."""
    heads, head_dim = q.shape[-2:]
    kv_heads = k.shape[-2]
    group = heads // kv_heads
    # The fastest ones on an H100.
    block, stages = (64, 3) if head_dim == 128 or causal else (128, 2)
    _attention_dk_dv_hopper[triton.cdiv(seqlen, 128), batches * kv_heads](
        descriptor_of(q, block), descriptor_of(k, 64), descriptor_of(v, 64),
        descriptor_of(dout, block), lse, delta, dk, dv, *strides_of(dk), *row_strides_of(lse),
        seqlen, kv_heads, group, softmax_scale,
        HEAD_DIM=head_dim, CAUSAL=causal, BLOCK_M=block, STAGES=stages,
    )  # fmt: skip
    block, stages = (64, 3) if head_dim == 128 else (128, 2)
    _attention_dq_hopper[triton.cdiv(seqlen, 128), batches * heads](
        descriptor_of(q, 64), descriptor_of(k, block), descriptor_of(v, block),
        descriptor_of(dout, 64), lse, delta, dq, *strides_of(dq), *row_strides_of(lse),
        seqlen, heads, group, softmax_scale,
        HEAD_DIM=head_dim, CAUSAL=causal, BLOCK_N=block, STAGES=stages,
    )  # fmt: skip

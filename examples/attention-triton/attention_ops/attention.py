"""Attention with grouped heads, for batches of one length and for packed sequences."""

import torch
import triton
import triton.language as tl

HEAD_DIMS = (64, 128)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _sequence(cu_seqlens, batch, seqlen, VARLEN: tl.constexpr):
    """The first row of a sequence, and its length."""
    if VARLEN:
        start = tl.load(cu_seqlens + batch).to(tl.int64)
        length = (tl.load(cu_seqlens + batch + 1) - start).to(tl.int32)
    else:
        start = tl.zeros([], dtype=tl.int64)
        length = seqlen
    return start, length


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
    start, length = _sequence(cu_seqlens, batch, seqlen, VARLEN)
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


@triton.jit(do_not_specialize=["seqlen"])
def _attention_delta(
    out,
    dout,
    delta,
    cu_seqlens,
    stride_ob,
    stride_os,
    stride_oh,
    stride_lb,
    stride_lh,
    seqlen,
    heads,
    HEAD_DIM: tl.constexpr,
    VARLEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """The inner products of the rows of `out` and `dout`, which have the same strides."""
    block = tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    start, length = _sequence(cu_seqlens, batch, seqlen, VARLEN)
    if block * BLOCK_M >= length:
        return
    first = start + block * BLOCK_M
    offset = batch * stride_ob + first * stride_os + head * stride_oh
    offsets, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    inside = block * BLOCK_M + offsets < length
    places = offset + offsets[:, None] * stride_os + dims[None, :]
    values = tl.load(out + places, mask=inside[:, None], other=0.0).to(tl.float32)
    grads = tl.load(dout + places, mask=inside[:, None], other=0.0).to(tl.float32)
    delta += batch * stride_lb + head * stride_lh + first
    tl.store(delta + offsets, tl.sum(values * grads, axis=1), mask=inside)


@triton.jit
def _add_dk_dv(
    dk,
    dv,
    key,
    value,
    q,
    dout,
    lse,
    delta,
    keys,
    begin,
    end,
    length,
    scale,
    stride_qs,
    stride_os,
    HEAD_DIM: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """Add what the queries from `begin` to `end` give to a block of keys and values."""
    offsets, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    query_offsets = offsets[:, None] * stride_qs + dims[None, :]
    grad_offsets = offsets[:, None] * stride_os + dims[None, :]
    for first in range(begin, end, BLOCK_M):
        rows = first + offsets
        inside = rows < length
        query_places = q + tl.cast(first, tl.int64) * stride_qs + query_offsets
        grad_places = dout + tl.cast(first, tl.int64) * stride_os + grad_offsets
        query = tl.load(query_places, mask=inside[:, None], other=0.0)
        grad = tl.load(grad_places, mask=inside[:, None], other=0.0)
        row_lse = tl.load(lse + rows, mask=inside, other=0.0)
        row_delta = tl.load(delta + rows, mask=inside, other=0.0)
        weights = tl.exp2(tl.dot(key, tl.trans(query)) * scale - row_lse[None, :])
        if MASKED:
            weights = tl.where(keys[:, None] <= rows[None, :], weights, 0.0)
        dv = tl.dot(weights.to(grad.dtype), grad, dv)
        dscores = weights * (tl.dot(value, tl.trans(grad)) - row_delta[None, :])
        dk = tl.dot(dscores.to(query.dtype), query, dk)
    return dk, dv


@triton.jit(do_not_specialize=["seqlen"])
def _attention_dk_dv(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dk,
    dv,
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
    stride_db,
    stride_ds,
    stride_dh,
    stride_lb,
    stride_lh,
    seqlen,
    kv_heads,
    group,
    softmax_scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    VARLEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tl.static_assert(BLOCK_N % BLOCK_M == 0)
    block = tl.program_id(0)
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    start, length = _sequence(cu_seqlens, batch, seqlen, VARLEN)
    if block * BLOCK_N >= length:
        return
    first = start + block * BLOCK_N
    k += batch * stride_kb + first * stride_ks + kv_head * stride_kh
    v += batch * stride_vb + first * stride_vs + kv_head * stride_vh
    offsets, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD_DIM)
    keys = block * BLOCK_N + offsets
    inside = (keys < length)[:, None]
    key = tl.load(k + offsets[:, None] * stride_ks + dims[None, :], mask=inside, other=0.0)
    value = tl.load(v + offsets[:, None] * stride_vs + dims[None, :], mask=inside, other=0.0)
    dkey = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    dvalue = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    scale = softmax_scale * LOG2_E
    for member in range(group):
        head = kv_head * group + member
        q_head = q + batch * stride_qb + start * stride_qs + head * stride_qh
        dout_head = dout + batch * stride_ob + start * stride_os + head * stride_oh
        row = batch * stride_lb + head * stride_lh + start
        unmasked = 0
        if CAUSAL:
            unmasked = (block + 1) * BLOCK_N
            dkey, dvalue = _add_dk_dv(
                dkey, dvalue, key, value, q_head, dout_head, lse + row, delta + row, keys,
                block * BLOCK_N, min(unmasked, length), length, scale, stride_qs, stride_os,
                HEAD_DIM, True, BLOCK_M,
            )  # fmt: skip
        dkey, dvalue = _add_dk_dv(
            dkey, dvalue, key, value, q_head, dout_head, lse + row, delta + row, keys,
            unmasked, length, length, scale, stride_qs, stride_os, HEAD_DIM, False, BLOCK_M,
        )  # fmt: skip
    offset = batch * stride_db + first * stride_ds + kv_head * stride_dh
    places = offset + offsets[:, None] * stride_ds + dims[None, :]
    tl.store(dk + places, (dkey * softmax_scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + places, dvalue.to(dv.dtype.element_ty), mask=inside)


@triton.jit
def _add_dq(
    dq,
    query,
    grad,
    row_lse,
    row_delta,
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
    """Add what the keys from `begin` to `end` give to a block of queries."""
    offsets, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD_DIM)
    key_offsets = offsets[:, None] * stride_ks + dims[None, :]
    value_offsets = offsets[:, None] * stride_vs + dims[None, :]
    for first in range(begin, end, BLOCK_N):
        keys = first + offsets
        inside = keys < length
        key_places = k + tl.cast(first, tl.int64) * stride_ks + key_offsets
        value_places = v + tl.cast(first, tl.int64) * stride_vs + value_offsets
        if MASKED:
            key = tl.load(key_places, mask=inside[:, None], other=0.0)
            value = tl.load(value_places, mask=inside[:, None], other=0.0)
        else:
            key = tl.load(key_places)
            value = tl.load(value_places)
        weights = tl.exp2(tl.dot(query, tl.trans(key)) * scale - row_lse[:, None])
        if MASKED:
            seen = inside[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            weights = tl.where(seen, weights, 0.0)
        dscores = weights * (tl.dot(grad, tl.trans(value)) - row_delta[:, None])
        dq = tl.dot(dscores.to(key.dtype), key, dq)
    return dq


@triton.jit(do_not_specialize=["seqlen"])
def _attention_dq(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    dq,
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
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    start, length = _sequence(cu_seqlens, batch, seqlen, VARLEN)
    if block * BLOCK_M >= length:
        return
    first = start + block * BLOCK_M
    q += batch * stride_qb + first * stride_qs + head * stride_qh
    k += batch * stride_kb + start * stride_ks + head // group * stride_kh
    v += batch * stride_vb + start * stride_vs + head // group * stride_vh
    offsets, dims = tl.arange(0, BLOCK_M), tl.arange(0, HEAD_DIM)
    rows = block * BLOCK_M + offsets
    inside = rows < length
    query_places = q + offsets[:, None] * stride_qs + dims[None, :]
    query = tl.load(query_places, mask=inside[:, None], other=0.0)
    offset = batch * stride_ob + first * stride_os + head * stride_oh
    grad_places = offset + offsets[:, None] * stride_os + dims[None, :]
    grad = tl.load(dout + grad_places, mask=inside[:, None], other=0.0)
    offset = batch * stride_lb + head * stride_lh + first
    row_lse = tl.load(lse + offset + offsets, mask=inside, other=0.0)
    row_delta = tl.load(delta + offset + offsets, mask=inside, other=0.0)
    dquery = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    scale = softmax_scale * LOG2_E
    if CAUSAL:
        end = min(length, (block + 1) * BLOCK_M)
        unmasked = block * BLOCK_M // BLOCK_N * BLOCK_N
    else:
        end = length
        unmasked = length // BLOCK_N * BLOCK_N
    dquery = _add_dq(
        dquery, query, grad, row_lse, row_delta, k, v, rows, 0, unmasked, length, scale,
        stride_ks, stride_vs, HEAD_DIM, CAUSAL, False, BLOCK_N,
    )  # fmt: skip
    dquery = _add_dq(
        dquery, query, grad, row_lse, row_delta, k, v, rows, unmasked, end, length, scale,
        stride_ks, stride_vs, HEAD_DIM, CAUSAL, True, BLOCK_N,
    )  # fmt: skip
    dquery = (dquery * softmax_scale).to(dq.dtype.element_ty)
    tl.store(dq + grad_places, dquery, mask=inside[:, None])


def _check(q, k, v):
    """Raise an error for tensors that the kernels cannot read."""
    heads, head_dim = q.shape[-2:]
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"the head size is {head_dim}, and not one of {HEAD_DIMS}")
    if heads % k.shape[-2] != 0:
        raise ValueError(f"{heads} heads of q cannot share {k.shape[-2]} heads of k")
    if q.stride(-1) != 1 or k.stride(-1) != 1 or v.stride(-1) != 1:
        raise ValueError("the last dimension of q, k and v has to be contiguous")


def _strides(x):
    """The strides of batches, rows and heads; packed sequences have no batches."""
    return 0 if x.dim() == 3 else x.stride(0), x.stride(-3), x.stride(-2)


def _forward(q, k, v, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """`out` and the logarithms, to the base of 2, of the sums of its softmax."""
    _check(q, k, v)
    heads, head_dim = q.shape[-2:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((*q.shape[:-3], heads, q.shape[-3]), dtype=torch.float32, device=q.device)

    def grid(meta):
        return triton.cdiv(seqlen, meta["BLOCK_M"]), batches * heads

    _attention_forward[grid](
        q,
        k,
        v,
        out,
        lse,
        cu_seqlens,
        *_strides(q),
        *_strides(k),
        *_strides(v),
        *_strides(out),
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
    return out, lse


def _backward(q, k, v, out, lse, dout, cu_seqlens, batches, seqlen, causal, softmax_scale):
    """The gradients of `q`, `k` and `v`."""
    heads, head_dim = q.shape[-2:]
    kv_heads = k.shape[-2]
    dout = dout.contiguous()
    dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    dk = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    dv = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    delta = torch.empty_like(lse)
    constants = {"HEAD_DIM": head_dim, "VARLEN": cu_seqlens is not None}
    row_strides = (0 if cu_seqlens is not None else lse.stride(0), lse.stride(-2))
    block_m = 64 if head_dim <= 64 else 32
    _attention_delta[triton.cdiv(seqlen, 64), batches * heads](
        out,
        dout,
        delta,
        cu_seqlens,
        *_strides(out),
        *row_strides,
        seqlen,
        heads,
        BLOCK_M=64,
        **constants,
    )
    _attention_dk_dv[triton.cdiv(seqlen, 128), batches * kv_heads](
        q,
        k,
        v,
        dout,
        lse,
        delta,
        dk,
        dv,
        cu_seqlens,
        *_strides(q),
        *_strides(k),
        *_strides(v),
        *_strides(dout),
        *_strides(dk),
        *row_strides,
        seqlen,
        kv_heads,
        heads // kv_heads,
        softmax_scale,
        CAUSAL=causal,
        BLOCK_M=block_m,
        BLOCK_N=128,
        num_warps=8,
        num_stages=2,
        **constants,
    )
    _attention_dq[triton.cdiv(seqlen, 128), batches * heads](
        q,
        k,
        v,
        dout,
        lse,
        delta,
        dq,
        cu_seqlens,
        *_strides(q),
        *_strides(k),
        *_strides(v),
        *_strides(dout),
        *row_strides,
        seqlen,
        heads,
        heads // kv_heads,
        softmax_scale,
        CAUSAL=causal,
        BLOCK_M=128,
        BLOCK_N=64,
        num_warps=8,
        num_stages=2,
        **constants,
    )
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

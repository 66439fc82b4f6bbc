"""The backward pass on every GPU."""

import torch
import triton
import triton.language as tl

from .sequences import LOG2_E, find_sequence, row_strides_of, strides_of


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
    start, length = find_sequence(cu_seqlens, batch, seqlen, VARLEN)
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
    start, length = find_sequence(cu_seqlens, batch, seqlen, VARLEN)
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
    start, length = find_sequence(cu_seqlens, batch, seqlen, VARLEN)
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


def inner_products(out, dout, lse, cu_seqlens, batches, seqlen):
    """Those of the rows of `out` and of its gradient, with the shape of `lse`."""
    heads, head_dim = out.shape[-2:]
    delta = torch.empty_like(lse)
    _attention_delta[triton.cdiv(seqlen, 64), batches * heads](
        out, dout, delta, cu_seqlens, *strides_of(out), *row_strides_of(lse), seqlen, heads,
        HEAD_DIM=head_dim, VARLEN=cu_seqlens is not None, BLOCK_M=64,
    )  # fmt: skip
    return delta


def backward(
    q, k, v, dout, lse, delta, dq, dk, dv, cu_seqlens, batches, seqlen, causal, softmax_scale
):
    """Write the gradients of `q`, `k` and `v`."""
    heads, head_dim = q.shape[-2:]
    kv_heads = k.shape[-2]
    strides = (*strides_of(q), *strides_of(k), *strides_of(v), *strides_of(dout))
    constants = {"HEAD_DIM": head_dim, "VARLEN": cu_seqlens is not None, "CAUSAL": causal}
    _attention_dk_dv[triton.cdiv(seqlen, 128), batches * kv_heads](
        q, k, v, dout, lse, delta, dk, dv, cu_seqlens, *strides, *strides_of(dk),
        *row_strides_of(lse), seqlen, kv_heads, heads // kv_heads, softmax_scale,
        BLOCK_M=64 if head_dim <= 64 else 32, BLOCK_N=128, num_warps=8, num_stages=2, **constants,
    )  # fmt: skip
    _attention_dq[triton.cdiv(seqlen, 128), batches * heads](
        q, k, v, dout, lse, delta, dq, cu_seqlens, *strides, *row_strides_of(lse),
        seqlen, heads, heads // kv_heads, softmax_scale,
        BLOCK_M=128, BLOCK_N=64, num_warps=8, num_stages=2, **constants,
    )  # fmt: skip

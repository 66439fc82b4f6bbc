"""Matrix products: out = a @ b with sums in float32.

Tiles are visited in groups of rows, so that neighbours share their part of `b` in the L2 cache.
"""

import triton
import triton.language as tl


@triton.jit
def _position(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of a tile, in units of tiles."""
    rows = tl.cdiv(M, BLOCK_M)
    group_size = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // group_size * GROUP_M
    height = min(rows - first, GROUP_M)
    within = tile % group_size
    return first + within % height, within // height


@triton.jit
def gemm_tma_kernel(
    a_desc,
    b_desc,
    out_desc,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PERSISTENT: tl.constexpr,
    HALVES: tl.constexpr,
):
    """Through TMA descriptors; PERSISTENT programs take one tile after the other.

    With HALVES = 2 a tile is stored in two halves, which takes half the shared memory.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    step = tl.num_programs(0)
    for tile in tl.range(tl.program_id(0), tiles, step, flatten=PERSISTENT):
        row, column = _position(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([row * BLOCK_M, k * BLOCK_K])
            b = b_desc.load([k * BLOCK_K, column * BLOCK_N])
            total = tl.dot(a, b, total)
        if HALVES == 2:
            pair = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            left, right = tl.split(pair)
            middle = column * BLOCK_N + BLOCK_N // 2
            out_desc.store([row * BLOCK_M, column * BLOCK_N], left.to(out_desc.dtype))
            out_desc.store([row * BLOCK_M, middle], right.to(out_desc.dtype))
        else:
            out_desc.store([row * BLOCK_M, column * BLOCK_N], total.to(out_desc.dtype))


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_om,
    stride_on,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Through pointers, for all strides."""
    row, column = _position(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    k = tl.arange(0, BLOCK_K)
    a_row = a_ptr + m.to(tl.int64) * stride_am
    b_column = b_ptr + n.to(tl.int64) * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        ka, kb = (first + k)[None, :], (first + k)[:, None]
        a = tl.load(a_row + ka.to(tl.int64) * stride_ak, (m < M) & (ka < K), 0.0)
        b = tl.load(b_column + kb.to(tl.int64) * stride_bk, (kb < K) & (n < N), 0.0)
        total = tl.dot(a, b, total)
    out = out_ptr + m.to(tl.int64) * stride_om + n.to(tl.int64) * stride_on
    tl.store(out, total.to(out_ptr.dtype.element_ty), (m < M) & (n < N))

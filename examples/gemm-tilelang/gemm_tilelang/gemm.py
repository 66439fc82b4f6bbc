"""The product of two matrices, in TileLang.

Blocks of `block_M` x `block_N` elements of the result are computed from slices of `block_K`, of
which `num_stages` are on their way at a time. Neighbouring blocks run together, in panels of
`panel` rows, so that what they read is still in the cache.
"""

import tilelang
import tilelang.language as T


@T.macro
def multiply(a, b, out, M, N, K, block_M, block_N, block_K, num_stages, threads, panel, dtype):
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
        a_tile = T.alloc_shared((block_M, block_K), dtype)
        b_tile = T.alloc_shared((block_K, block_N), dtype)
        out_tile = T.alloc_shared((block_M, block_N), dtype)
        total = T.alloc_fragment((block_M, block_N), T.float32)
        T.use_swizzle(panel)
        # Two warpgroups, on Hopper: each has rows of its own, and reads every element of `a` once.
        policy = T.GemmWarpPolicy.FullRow if threads == 256 else T.GemmWarpPolicy.Square
        T.clear(total)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(a[by * block_M, k * block_K], a_tile)
            T.copy(b[k * block_K, bx * block_N], b_tile)
            T.gemm(a_tile, b_tile, total, policy=policy)
        T.copy(total, out_tile)
        T.copy(out_tile, out[by * block_M, bx * block_N])


@tilelang.jit
def gemm(
    a,
    b,
    block_M: int = 128,
    block_N: int = 128,
    block_K: int = 64,
    num_stages: int = 3,
    threads: int = 256,
    panel: int = 8,
    dtype: T.dtype = T.float16,
):
    """Any sizes. Hopper's copy engine needs no constant sizes to be fast."""
    M, N, K = T.dynamic("M, N, K")
    a: T.Tensor[[M, K], dtype]
    b: T.Tensor[[K, N], dtype]
    out = T.empty([M, N], dtype)
    multiply(a, b, out, M, N, K, block_M, block_N, block_K, num_stages, threads, panel, dtype)
    return out


@tilelang.jit
def gemm_square(
    a,
    b,
    block_M: int = 128,
    block_N: int = 128,
    block_K: int = 32,
    num_stages: int = 3,
    threads: int = 128,
    panel: int = 8,
    dtype: T.dtype = T.float16,
):
    """`b` is a square whose size is fixed: older GPUs copy 16 bytes at once when they know it."""
    M = T.dynamic("M")
    D = T.const("D")
    a: T.Tensor[[M, D], dtype]
    b: T.Tensor[[D, D], dtype]
    out = T.empty([M, D], dtype)
    multiply(a, b, out, M, D, D, block_M, block_N, block_K, num_stages, threads, panel, dtype)
    return out

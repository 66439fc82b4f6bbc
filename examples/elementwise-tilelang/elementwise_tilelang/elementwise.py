"""Sum and product of tensors, and a bias for each column, in TileLang.

On a GPU a block of threads works on `block` elements; on the CPU the blocks are a loop.
"""

import tilelang
import tilelang.language as T


@T.macro
def fused(x, y, scale):
    return T.cast(x, "float32") + scale * T.cast(y, "float32")


@tilelang.jit
def add(x, y, alpha: T.float32 = 1.0, block: int = 1024, dtype: T.dtype = T.float32):
    n = T.dynamic("n")
    x: T.Tensor[[n], dtype]
    y: T.Tensor[[n], dtype]
    out = T.empty([n], dtype)
    with T.Kernel(T.ceildiv(n, block), threads=256) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = T.cast(
                    fused(x[at * block + i], y[at * block + i], alpha), dtype
                )
    return out


@tilelang.jit
def mul(x, y, scale: T.float32 = 1.0, block: int = 1024, dtype: T.dtype = T.float32):
    n = T.dynamic("n")
    x: T.Tensor[[n], dtype]
    y: T.Tensor[[n], dtype]
    out = T.empty([n], dtype)
    with T.Kernel(T.ceildiv(n, block), threads=256) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                product = T.cast(x[at * block + i], "float32") * T.cast(
                    y[at * block + i], "float32"
                )
                out[at * block + i] = T.cast(product * scale, dtype)
    return out


def add_bias(M, N, rows=4, dtype="float32"):
    """A function without a decorator, whose dimensions are arguments: `M` stays dynamic."""

    @T.prim_func
    def main(x: T.Tensor((M, N), dtype), bias: T.Tensor((N,), dtype), out: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=256) as at:
            for i, j in T.Parallel(rows, N):
                if at * rows + i < M:
                    out[at * rows + i, j] = x[at * rows + i, j] + bias[j]

    return main

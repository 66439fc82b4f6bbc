"""`x + alpha * y` in TileLang: blocks of threads on a GPU, a loop on the CPU."""

import tilelang
import tilelang.language as T


@tilelang.jit
def axpy(x, y, alpha: T.float32 = 1.0, block: int = 1024):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    y: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=256) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = x[at * block + i] + alpha * y[at * block + i]
    return out

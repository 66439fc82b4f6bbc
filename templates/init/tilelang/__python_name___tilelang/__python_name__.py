import tilelang
import tilelang.language as T


@tilelang.jit
def scale(x, factor: T.float32, block: int):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=256) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = x[at * block + i] * factor
    return out

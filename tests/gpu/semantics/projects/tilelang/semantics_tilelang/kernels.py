"""Kernels that accumulate, skip, alias, mutate, stop early, and count beyond 32 bits."""

import tilelang
import tilelang.language as T


@tilelang.jit
def axpy(y, x, a: T.float32, block: int = 256):
    n = T.dynamic("n")
    y: T.Tensor[[n], T.float32]
    x: T.Tensor[[n], T.float32]
    with T.Kernel(T.ceildiv(n, block), threads=128) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                y[at * block + i] = y[at * block + i] + a * x[at * block + i]


@tilelang.jit
def add_row_sums(x, sums, block: int = 64, dtype: T.dtype = T.float32):
    m, n = T.dynamic("m, n")
    x: T.Tensor[[m, n], dtype]
    sums: T.Tensor[[m], T.float32]
    with T.Kernel(m, T.ceildiv(n, block), threads=64) as (row, column):
        part = T.alloc_fragment((block,), "float32")
        total = T.alloc_fragment((1,), "float32")
        for i in T.Parallel(block):
            part[i] = T.if_then_else(
                column * block + i < n, T.cast(x[row, column * block + i], "float32"), 0.0
            )
        T.reduce_sum(part, total, dim=0)
        for i in T.Parallel(1):
            T.atomic_add(sums[row], total[i])


@tilelang.jit
def scatter_rows(x, index, out):
    count, rows, n = T.dynamic("count, rows, n")
    x: T.Tensor[[count, n], T.float32]
    index: T.Tensor[[count], T.int32]
    out: T.Tensor[[rows, n], T.float32]
    with T.Kernel(count, threads=64) as at:
        if index[at] >= 0:
            if index[at] < rows:
                for i in T.Parallel(n):
                    out[index[at], i] = x[at, i]


@tilelang.jit
def scale(x, factor: T.float32, block: int = 512, dtype: T.dtype = T.float16):
    n = T.dynamic("n")
    x: T.Tensor[[n], dtype]
    out = T.empty([n], dtype)
    with T.Kernel(T.ceildiv(n, block), threads=128) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = T.cast(T.cast(x[at * block + i], "float32") * factor, dtype)
    return out


@tilelang.jit
def add_strided(x, y, block: int = 64):
    m, n, xm, xn, ym, yn = T.dynamic("m, n, xm, xn, ym, yn")
    x: T.StridedTensor[[m, n], [xm, xn], T.float32]
    y: T.StridedTensor[[m, n], [ym, yn], T.float32]
    out = T.empty([m, n], T.float32)
    with T.Kernel(m, T.ceildiv(n, block), threads=64) as (row, column):
        for i in T.Parallel(block):
            if column * block + i < n:
                out[row, column * block + i] = (
                    x[row, column * block + i] + y[row, column * block + i]
                )
    return out


@tilelang.jit
def toggle_bytes(x, value: T.int32, block: int = 4096):
    n = T.dynamic("n", "int64")
    x: T.Tensor[[n], T.int8]
    with T.Kernel(T.cast(T.ceildiv(n, block), "int32"), threads=256) as at:
        for i in T.Parallel(block):
            if T.cast(at, "int64") * block + i < n:
                x[T.cast(at, "int64") * block + i] = x[T.cast(at, "int64") * block + i] ^ T.cast(
                    value, "int8"
                )


@tilelang.jit
def copy_bytes(x, block: int = 4096):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.int8]
    out = T.empty([n], T.int8)
    with T.Kernel(T.ceildiv(n, block), threads=256) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = x[at * block + i]
    return out


def swap(n, block=128):
    """A factory without a decorator, with two mutated tensors."""

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), y: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as at:
            kept = T.alloc_fragment((block,), "int32")
            other = T.alloc_fragment((block,), "int32")
            for i in T.Parallel(block):
                if at * block + i < n:
                    kept[i] = x[at * block + i]
                    other[i] = y[at * block + i]
            T.sync_threads()
            for i in T.Parallel(block):
                if at * block + i < n:
                    x[at * block + i] = other[i]
                    y[at * block + i] = kept[i]

    return main


def column_sums(N, dtype="float32", block=32):
    """Two kernels in one function: the second one reads what the first one wrote."""
    M, P = T.dynamic("M, P")

    @T.prim_func
    def main(
        x: T.Tensor((M, N), dtype),
        parts: T.Tensor((P, N), "float32"),
        out: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(P, threads=128) as at:
            for j in T.Parallel(N):
                parts[at, j] = 0.0
            for i in T.serial(block):
                if at * block + i < M:
                    for j in T.Parallel(N):
                        parts[at, j] += T.cast(x[at * block + i, j], "float32")
        with T.Kernel(1, threads=128) as _:
            for j in T.Parallel(N):
                out[j] = 0.0
            for i in T.serial(P):
                for j in T.Parallel(N):
                    out[j] += parts[i, j]

    return main

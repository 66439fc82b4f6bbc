"""Addition in CuTe DSL: of tensors as one dimension, and of matrices with any strides.

Each thread adds `vector` neighbours. How wide its loads are follows from what is known of the
tensors: 16 bytes where they are aligned, one element where nothing is.
"""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, cute


@cute.kernel
def add_kernel(x, y, out, alpha: Float32, vector: cutlass.Constexpr, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    size = cute.size(x)
    tile = type(size)(block) * threads + thread
    first = tile * vector
    if first + vector <= size:
        xs, ys, outs = (cute.local_tile(one, (vector,), (tile,)) for one in (x, y, out))
        total = xs.load().to(Float32) + alpha * ys.load().to(Float32)
        outs.store(total.to(out.element_type))
    else:
        for behind in cutlass.range_constexpr(vector):
            i = first + behind
            if i < size:
                out[i] = (x[i].to(Float32) + alpha * y[i].to(Float32)).to(out.element_type)


@cute.jit
def add(
    x: cute.Tensor,
    y: cute.Tensor,
    out: cute.Tensor,
    alpha: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream: CUstream,
):
    blocks = cute.ceil_div(cute.size(x), vector * threads)
    add_kernel(x, y, out, alpha, vector, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )


@cute.kernel
def add_strided_kernel(
    x, y, out, alpha: Float32, vector: cutlass.Constexpr, threads: cutlass.Constexpr
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns = x.shape
    across = cute.ceil_div(columns, vector)
    number = block * threads + thread
    row, tile = number // across, number % across
    first = tile * vector
    if row < rows:
        if first + vector <= columns:
            xs, ys, outs = (cute.local_tile(one, (1, vector), (row, tile)) for one in (x, y, out))
            total = xs.load().to(Float32) + alpha * ys.load().to(Float32)
            outs.store(total.to(out.element_type))
        else:
            for behind in cutlass.range_constexpr(vector):
                i = first + behind
                if i < columns:
                    total = x[row, i].to(Float32) + alpha * y[row, i].to(Float32)
                    out[row, i] = total.to(out.element_type)


@cute.jit
def add_strided(
    x: cute.Tensor,
    y: cute.Tensor,
    out: cute.Tensor,
    alpha: Float32,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream: CUstream,
):
    rows, columns = x.shape
    blocks = cute.ceil_div(rows * cute.ceil_div(columns, vector), threads)
    add_strided_kernel(x, y, out, alpha, vector, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )

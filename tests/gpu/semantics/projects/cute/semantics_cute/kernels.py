"""Kernels that accumulate, skip, alias, mutate, stop early, and count beyond 32 bits."""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int8, Int32, Int64, cute

THREADS = 128


@cute.kernel
def axpy_kernel(y, x, a: Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(x):
        y[i] = (y[i].to(Float32) + a * x[i].to(Float32)).to(y.element_type)


@cute.jit
def axpy(y: cute.Tensor, x: cute.Tensor, a: Float32, stream: CUstream):
    axpy_kernel(y, x, a).launch(
        grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def add_strided_kernel(x, y, out):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, columns = x.shape
    at = block * THREADS + thread
    row, column = at // columns, at % columns
    if row < rows:
        out[row, column] = x[row, column] + y[row, column]


@cute.jit
def add_strided(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, stream: CUstream):
    add_strided_kernel(x, y, out).launch(
        grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def count_values_kernel(values, counts):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(values):
        value = values[i]
        if value >= 0 and value < cute.size(counts):
            cute.arch.atomic_add((counts.iterator + value).llvm_ptr, Int32(1))


@cute.jit
def count_values(values: cute.Tensor, counts: cute.Tensor, stream: CUstream):
    count_values_kernel(values, counts).launch(
        grid=(cute.ceil_div(cute.size(values), THREADS), 1, 1),
        block=(THREADS, 1, 1),
        stream=stream,
    )


@cute.kernel
def scatter_rows_kernel(x, index, out):
    thread, _, _ = cute.arch.thread_idx()
    at, _, _ = cute.arch.block_idx()
    row = index[at]
    if row >= 0 and row < out.shape[0]:
        for column in cutlass.range(thread, x.shape[1], THREADS):
            out[row, column] = x[at, column]


@cute.jit
def scatter_rows(x: cute.Tensor, index: cute.Tensor, out: cute.Tensor, stream: CUstream):
    scatter_rows_kernel(x, index, out).launch(
        grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def toggle_bytes_kernel(x, value: Int32, per: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    first = Int64(block) * (THREADS * per) + thread
    for step in cutlass.range_constexpr(per):
        i = first + step * THREADS
        if i < cute.size(x):
            x[i] = x[i] ^ value.to(Int8)


@cute.jit
def toggle_bytes(x: cute.Tensor, value: Int32, per: cutlass.Constexpr, stream: CUstream):
    blocks = cute.ceil_div(cute.size(x), THREADS * per)
    toggle_bytes_kernel(x, value, per).launch(
        grid=(Int32(blocks), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def swap_kernel(x, y):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(x):
        left, right = x[i], y[i]
        x[i] = right
        y[i] = left


@cute.jit
def swap(x: cute.Tensor, y: cute.Tensor, stream: CUstream):
    swap_kernel(x, y).launch(
        grid=(cute.ceil_div(cute.size(x), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def row_sums_kernel(x, out):
    """A warp for each row; lanes beyond its end add nothing."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    total = Int64(0)
    for column in cutlass.range(thread, x.shape[1], 32):
        total += Int64(x[row, column])
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    if thread == 0:
        out[row] = total


@cute.jit
def row_sums(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    row_sums_kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(32, 1, 1), stream=stream)

"""A kernel for C++ programs: `out = x + factor * y`, for vectors of any length."""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, cute


@cute.kernel
def axpy_kernel(x, y, out, factor: Float32, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * threads + thread
    if i < x.shape[0]:
        out[i] = x[i] + factor * y[i]


@cute.jit
def axpy(
    x: cute.Tensor,
    y: cute.Tensor,
    out: cute.Tensor,
    factor: Float32,
    threads: cutlass.Constexpr,
    stream: CUstream,
):
    axpy_kernel(x, y, out, factor, threads).launch(
        grid=(cute.ceil_div(x.shape[0], threads), 1, 1), block=(threads, 1, 1), stream=stream
    )

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, cute


@cute.kernel
def scale_kernel(x, out, factor: Float32, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    size = cute.size(x)
    i = type(size)(block) * threads + thread
    if i < size:
        out[i] = x[i] * factor


@cute.jit
def scale(
    x: cute.Tensor,
    out: cute.Tensor,
    factor: Float32,
    threads: cutlass.Constexpr,
    stream: CUstream,
):
    blocks = cute.ceil_div(cute.size(x), threads)
    scale_kernel(x, out, factor, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )

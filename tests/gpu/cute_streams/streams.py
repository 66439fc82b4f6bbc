"""Host functions that say nothing of a stream, or not to all of their launches: out = 2 (x + 1)."""

from cuda.bindings.driver import CUstream
from cutlass import cute

THREADS = 128


@cute.kernel
def plus_one(x, out):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(x):
        out[i] = x[i] + 1


@cute.kernel
def twice(out):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < cute.size(out):
        out[i] = out[i] * 2


@cute.jit
def no_stream(x: cute.Tensor, out: cute.Tensor):
    blocks = cute.ceil_div(cute.size(x), THREADS)
    plus_one(x, out).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))
    twice(out).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


@cute.jit
def forgotten(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    blocks = cute.ceil_div(cute.size(x), THREADS)
    plus_one(x, out).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)
    twice(out).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))

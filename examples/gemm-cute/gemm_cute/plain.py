"""A matrix product in CuTe DSL that assumes no alignment, for what the copy engine cannot read."""

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.memory import SmemAllocator

TILE, DEPTH = 64, 16
EACH = 4
"""Rows and columns of the result that a thread computes."""
SIDE = TILE // EACH
THREADS = SIDE * SIDE


@cute.kernel
def kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    across, down, _ = cute.arch.block_idx()
    rows, depth = a.shape
    columns = b.shape[1]
    memory = SmemAllocator()
    tile_a = memory.allocate_tensor(Float32, cute.make_layout((TILE, DEPTH), stride=(1, TILE)), 16)
    tile_b = memory.allocate_tensor(Float32, cute.make_layout((DEPTH, TILE), stride=(TILE, 1)), 16)
    total = cute.make_rmem_tensor((EACH, EACH), Float32)
    total.fill(0.0)
    own_row, own_column = thread // SIDE, thread % SIDE
    for step in cutlass.range(cute.ceil_div(depth, DEPTH), unroll=1):
        for part in cutlass.range_constexpr(TILE * DEPTH // THREADS):
            number = thread + part * THREADS
            row, k = number // DEPTH, number % DEPTH
            value = Float32(0.0)
            if down * TILE + row < rows and step * DEPTH + k < depth:
                value = a[down * TILE + row, step * DEPTH + k].to(Float32)
            tile_a[row, k] = value
            k, column = number // TILE, number % TILE
            value = Float32(0.0)
            if step * DEPTH + k < depth and across * TILE + column < columns:
                value = b[step * DEPTH + k, across * TILE + column].to(Float32)
            tile_b[k, column] = value
        cute.arch.sync_threads()
        for k in cutlass.range_constexpr(DEPTH):
            for i in cutlass.range_constexpr(EACH):
                for j in cutlass.range_constexpr(EACH):
                    total[i, j] += tile_a[own_row * EACH + i, k] * tile_b[k, own_column + j * SIDE]
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(EACH):
        for j in cutlass.range_constexpr(EACH):
            row = down * TILE + own_row * EACH + i
            column = across * TILE + own_column + j * SIDE
            if row < rows and column < columns:
                out[row, column] = total[i, j].to(out.element_type)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, stream):
    """`out = a @ b`."""
    across = cute.ceil_div(b.shape[1], TILE)
    down = cute.ceil_div(Int32(a.shape[0]), TILE)
    kernel(a, b, out).launch(grid=(across, down, 1), block=(THREADS, 1, 1), stream=stream)

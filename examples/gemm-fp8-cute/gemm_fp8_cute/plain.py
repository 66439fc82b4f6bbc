"""The same product without the copy engine and the tensor cores: any sizes, any addresses."""

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.memory import SmemAllocator

TILE, DEPTH = 64, 16
EACH = 4
"""Rows and columns of the result that a thread computes."""
SIDE = TILE // EACH
THREADS = SIDE * SIDE
BLOCK = 128
"""Elements of a row that share a scale."""


@cute.kernel
def kernel(
    a: cute.Tensor, b: cute.Tensor, scales_a: cute.Tensor, scales_b: cute.Tensor, out: cute.Tensor
):
    thread, _, _ = cute.arch.thread_idx()
    across, down, _ = cute.arch.block_idx()
    (rows, depth), columns = a.shape, b.shape[0]
    memory = SmemAllocator()
    tile_a = memory.allocate_tensor(Float32, cute.make_layout((TILE, DEPTH), stride=(1, TILE)), 16)
    tile_b = memory.allocate_tensor(Float32, cute.make_layout((TILE, DEPTH), stride=(1, TILE)), 16)
    total = cute.make_rmem_tensor((EACH, EACH), Float32)
    total.fill(0.0)
    own_row, own_column = thread // SIDE, thread % SIDE
    for step in cutlass.range(cute.ceil_div(depth, DEPTH), unroll=1):
        for part in cutlass.range_constexpr(TILE * DEPTH // THREADS):
            number = thread + part * THREADS
            at, k = number // DEPTH, step * DEPTH + number % DEPTH
            row, column = down * TILE + at, across * TILE + at
            left, right = Float32(0.0), Float32(0.0)
            if row < rows and k < depth:
                left = a[row, k].to(Float32) * scales_a[row, k // BLOCK]
            if column < columns and k < depth:
                right = b[column, k].to(Float32) * scales_b[column // BLOCK, k // BLOCK]
            tile_a[at, number % DEPTH] = left
            tile_b[at, number % DEPTH] = right
        cute.arch.sync_threads()
        for k in cutlass.range_constexpr(DEPTH):
            for i in cutlass.range_constexpr(EACH):
                for j in cutlass.range_constexpr(EACH):
                    total[i, j] += tile_a[own_row * EACH + i, k] * tile_b[own_column + j * SIDE, k]
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(EACH):
        for j in cutlass.range_constexpr(EACH):
            row = down * TILE + own_row * EACH + i
            column = across * TILE + own_column + j * SIDE
            if row < rows and column < columns:
                out[row, column] = total[i, j].to(out.element_type)


@cute.jit
def launch(
    a: cute.Tensor,
    b: cute.Tensor,
    scales_a: cute.Tensor,
    scales_b: cute.Tensor,
    out: cute.Tensor,
    stream,
):
    """`out = (a * scales_a) @ (b * scales_b).T`."""
    across = cute.ceil_div(b.shape[0], TILE)
    down = cute.ceil_div(Int32(a.shape[0]), TILE)
    grid = (across, down, 1)
    kernel(a, b, scales_a, scales_b, out).launch(grid=grid, block=(THREADS, 1, 1), stream=stream)

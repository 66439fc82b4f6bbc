"""Matrix products: out = a @ b with sums in float32.

Each block makes several tiles of the result. Tiles are visited in groups of rows, so that
neighbours share their part of `b` in the L2 cache.
"""

import cuda.tile as ct

ConstInt = ct.Constant[int]


@ct.kernel
def gemm(a, b, out, BLOCK_M: ConstInt, BLOCK_N: ConstInt, BLOCK_K: ConstInt, GROUP_M: ConstInt):
    rows = ct.num_tiles(out, axis=0, shape=(BLOCK_M, BLOCK_N))
    columns = ct.num_tiles(out, axis=1, shape=(BLOCK_M, BLOCK_N))
    zero = ct.PaddingMode.ZERO
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        first = tile // (GROUP_M * columns) * GROUP_M
        height = min(rows - first, GROUP_M)
        within = tile % (GROUP_M * columns)
        row, column = first + within % height, within // height
        total = ct.full((BLOCK_M, BLOCK_N), 0, dtype=ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(BLOCK_M, BLOCK_K))):
            x = ct.load(a, index=(row, k), shape=(BLOCK_M, BLOCK_K), padding_mode=zero)
            y = ct.load(b, index=(k, column), shape=(BLOCK_K, BLOCK_N), padding_mode=zero)
            total = ct.mma(x, y, total)
        ct.store(out, index=(row, column), tile=ct.astype(total, out.dtype))

"""Kernels whose results are the same bit by bit, whoever launches them."""

import cuda.tile as ct

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def axpy(y, x, a, BLOCK: Size):
    i = ct.bid(0)
    old = ct.astype(ct.load(y, index=(i,), shape=(BLOCK,)), ct.float32)
    new = ct.astype(ct.load(x, index=(i,), shape=(BLOCK,)), ct.float32)
    ct.store(y, index=(i,), tile=ct.astype(old + a * new, y.dtype))


@ct.kernel
def add_strided(x, y, out, TM: Size, TN: Size):
    at = (ct.bid(0), ct.bid(1))
    total = ct.load(x, index=at, shape=(TM, TN)) + ct.load(y, index=at, shape=(TM, TN))
    ct.store(out, index=at, tile=total)


@ct.kernel
def row_sums(x, out, TM: Size, TN: Size):
    i = ct.bid(0)
    total = ct.full((TM,), 0, dtype=ct.int32)
    for k in range(ct.num_tiles(x, axis=1, shape=(TM, TN))):
        tile = ct.load(x, index=(i, k), shape=(TM, TN), padding_mode=ZERO)
        total = total + ct.sum(ct.astype(tile, ct.int32), axis=1)
    ct.store(out, index=(i,), tile=total)


@ct.kernel
def toggle_bytes(x, value, BLOCK: Size):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(BLOCK,))
    ct.store(x, index=(i,), tile=tile ^ ct.astype(value, ct.int8))

import cuda.tile as ct


@ct.kernel
def scale_kernel(x, out, factor, BLOCK: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, index=(i,), shape=(BLOCK,))
    ct.store(out, index=(i,), tile=tile * factor)

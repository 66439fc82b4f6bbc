import functools

import ninetoothed
from ninetoothed import Tensor


def arrangement(x, factor, out, block_size):
    return x.tile((block_size,)), factor, out.tile((block_size,))


def application(x, factor, out):
    out = x * factor  # noqa: F841


def scale_premake(block_size):
    vector = functools.partial(Tensor, 1, dtype=ninetoothed.float32)
    factor = Tensor(0, dtype=ninetoothed.float32)
    tensors = (vector(), factor, vector())
    return functools.partial(arrangement, block_size=block_size), application, tensors


scale_configs = (((), {"block_size": 1024}, {"num_warps": 4}),)

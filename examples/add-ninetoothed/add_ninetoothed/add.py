"""Vector addition in NineToothed, as its guide has it: three block sizes, of which one is tuned."""

import functools

import ninetoothed
from ninetoothed import Tensor

BLOCK_SIZES = (512, 1024, 2048)


def arrangement(input, other, output, block_size):  # noqa: A002
    return tuple(tensor.tile((block_size,)) for tensor in (input, other, output))


def application(input, other, output):  # noqa: A002
    output = input + other  # noqa: F841


def premake(block_size):
    tensors = tuple(
        Tensor(1, dtype=ninetoothed.float16, shape_options={"upper_bound": 2**24}) for _ in range(3)
    )
    return functools.partial(arrangement, block_size=block_size), application, tensors


configs = tuple(((), {"block_size": size}, {}) for size in BLOCK_SIZES)
meta_parameters = ("block_size",)

"""Matrix multiplication in NineToothed, as its guide has it.

The sizes are written into the kernel, so it is for 512 x 512 x 512 only; block sizes, warps and
stages are tuned.
"""

import functools
import itertools

import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor

SIZE = 512
BLOCKS = ((64, 64, 64), (128, 128, 64))
OPTIONS = ((4, 3), (8, 3))


def arrangement(lhs, rhs, output, block_size_m, block_size_n, block_size_k):
    output = output.tile((block_size_m, block_size_n))
    rows, columns = output.shape

    lhs = lhs.tile((block_size_m, block_size_k)).tile((1, -1)).expand((-1, columns))
    lhs.dtype = lhs.dtype.squeeze(0)

    rhs = rhs.tile((block_size_k, block_size_n)).tile((-1, 1)).expand((rows, -1))
    rhs.dtype = rhs.dtype.squeeze(1)
    return lhs, rhs, output


def application(lhs, rhs, output):
    accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
    for k in range(lhs.shape[0]):
        accumulator += ntl.dot(lhs[k], rhs[k])
    output = accumulator.to(output.dtype)


def premake(m, n, k, dtype, block_size_m, block_size_n, block_size_k):
    blocks = {
        "block_size_m": block_size_m,
        "block_size_n": block_size_n,
        "block_size_k": block_size_k,
    }
    shapes = ((m, k), (k, n), (m, n))
    tensors = tuple(Tensor(shape=shape, dtype=dtype) for shape in shapes)
    return functools.partial(arrangement, **blocks), application, tensors


meta_parameters = ("block_size_m", "block_size_n", "block_size_k")
configs = tuple(
    (
        (SIZE, SIZE, SIZE, dtype),
        dict(zip(meta_parameters, blocks, strict=True)),
        {"num_warps": num_warps, "num_stages": num_stages},
    )
    for dtype, blocks, (num_warps, num_stages) in itertools.product(
        (ninetoothed.float16, ninetoothed.bfloat16), BLOCKS, OPTIONS
    )
)

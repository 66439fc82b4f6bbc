"""Kernels that mutate, alias, reduce and multiply, as `ninetoothed.build` is given them."""

import functools

import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor

FLOATS = (ninetoothed.float16, ninetoothed.float32)


def tiled(*tensors, block_size):
    return tuple(tensor.tile((block_size,)) if tensor.ndim else tensor for tensor in tensors)


def add_application(input, other, output):  # noqa: A002
    output = input + other  # noqa: F841


def add_premake(dtype, block_size):
    tensors = tuple(Tensor(1, dtype=dtype) for _ in range(3))
    return functools.partial(tiled, block_size=block_size), add_application, tensors


add_configs = tuple(
    ((dtype,), {"block_size": size}, {})
    for dtype in (*FLOATS, ninetoothed.int8)
    for size in (512, 1024)
)
add_meta_parameters = ("block_size",)


def axpy_application(y, x, a):
    y = y + a * x


def axpy_premake(dtype, block_size=256):
    tensors = (Tensor(1, dtype=dtype), Tensor(1, dtype=dtype), Tensor(0, dtype=ninetoothed.float32))
    return functools.partial(tiled, block_size=block_size), axpy_application, tensors


axpy_configs = tuple(((dtype,), {}, {}) for dtype in FLOATS)


def square_application(x):
    x = x * x


def square_premake(block_size=512):
    return functools.partial(tiled, block_size=block_size), square_application, (Tensor(1),)


square_configs = (((), {}, {}),)


def rows(input, output, block_size):  # noqa: A002
    return input.tile((1, block_size)), output.tile((1, block_size))


def softmax_application(input, output):  # noqa: A002
    exponent = ntl.exp(ntl.cast(input, ntl.float32) - ntl.max(ntl.cast(input, ntl.float32)))
    output = exponent / ntl.sum(exponent)  # noqa: F841


def softmax_premake(dtype, block_size):
    tensors = (Tensor(2, dtype=dtype, other=float("-inf")), Tensor(2, dtype=dtype))
    return functools.partial(rows, block_size=block_size), softmax_application, tensors


softmax_configs = tuple(((dtype, 128), {}, {}) for dtype in FLOATS)


def added(x, y, out, block):
    return tuple(tensor.tile((1,) * (tensor.ndim - 2) + (block, block)) for tensor in (x, y, out))


def add4_application(x, y, out):
    out = x + y  # noqa: F841


def add4_premake(ndim, dtype, block=16):
    tensors = tuple(Tensor(ndim, dtype=dtype) for _ in range(3))
    return functools.partial(added, block=block), add4_application, tensors


add4_configs = tuple(((4, dtype), {}, {}) for dtype in FLOATS)


def mm_arrangement(input, other, output, block):  # noqa: A002
    output = output.tile((block, block))
    input = input.tile((block, block)).tile((1, -1)).expand((-1, output.shape[1]))  # noqa: A001
    input.dtype = input.dtype.squeeze(0)
    other = other.tile((block, block)).tile((-1, 1)).expand((output.shape[0], -1))
    other.dtype = other.dtype.squeeze(1)
    return input, other, output


def mm_application(input, other, output):  # noqa: A002
    accumulator = ntl.zeros(output.shape, dtype=ntl.float32)
    for k in range(input.shape[0]):
        accumulator += ntl.dot(input[k], other[k])
    output = accumulator.to(output.dtype)


def mm_premake(block=32):
    tensors = tuple(Tensor(2, dtype=ninetoothed.float16) for _ in range(3))
    return functools.partial(mm_arrangement, block=block), mm_application, tensors


mm_configs = (((), {}, {"num_warps": 4, "num_stages": 2}),)


def flat(*tensors, block):
    return tuple(one.flatten().tile((block,)) if one.ndim else one for one in tensors)


def blend_application(x, y, alpha, beta, out):
    out = alpha * x + (1 - beta) * y  # noqa: F841


def blend_premake(block=512):
    numbers = (Tensor(0, dtype=ninetoothed.float64), Tensor(0, dtype=ninetoothed.float16))
    x, y, out = (Tensor(6, dtype=ninetoothed.float64) for _ in range(3))
    return functools.partial(flat, block=block), blend_application, (x, y, *numbers, out)


blend_configs = (((), {}, {}),)


def whole_rows(x, out):
    return x.tile((1, -1)), out.tile((1, -1))


def row_max_application(x, out):
    out = x - ntl.max(x)  # noqa: F841


def row_max_premake(dtype):
    options = (None, {"constexpr": True, "upper_bound": 4096})
    x = Tensor(2, dtype=dtype, other=float("-inf"), shape_options=options)
    return whole_rows, row_max_application, (x, Tensor(2, dtype=dtype, shape_options=options))


row_max_configs = tuple(((dtype,), {}, {}) for dtype in FLOATS)

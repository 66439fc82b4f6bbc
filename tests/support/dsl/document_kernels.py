"""Kernels in the styles of the documents that kbuild implements, one for each code example."""

from __future__ import annotations

NINETOOTHED = {
    "added": """\
import functools
import pathlib

import ninetoothed
from ninetoothed import Tensor


def tiles(left, right, total, block):
    return tuple(tensor.tile((block,)) for tensor in (left, right, total))


def add(left, right, total):
    total = left + right


def premake(block):
    tensors = tuple(Tensor(1, dtype=ninetoothed.float16) for _ in range(3))
    return functools.partial(tiles, block=block), add, tensors


folder = pathlib.Path("./never")
folder.mkdir(parents=True, exist_ok=True)
added = ninetoothed.build(
    premake,
    tuple(((), {"block": block}, {}) for block in (256, 512)),
    meta_parameters=("block",),
    kernel_name="added",
    output_dir=folder,
    lazy=True,
)

if __name__ == "__main__":
    import torch

    x = torch.tensor((1, 2), dtype=torch.float16, device="cuda")
    added(x, x, torch.empty_like(x))
""",
    "product": """\
import functools

import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor


def tiles(left, right, out, rows, columns, depth):
    out_tiles = out.tile((rows, columns))
    left_tiles = left.tile((rows, depth)).tile((1, -1)).expand((-1, out_tiles.shape[1]))
    left_tiles.dtype = left_tiles.dtype.squeeze(0)
    right_tiles = right.tile((depth, columns)).tile((-1, 1)).expand((out_tiles.shape[0], -1))
    right_tiles.dtype = right_tiles.dtype.squeeze(1)
    return left_tiles, right_tiles, out_tiles


def multiply(left, right, out):
    total = ntl.zeros(out.shape, dtype=ntl.float32)
    for at in range(left.shape[0]):
        total += ntl.dot(left[at], right[at])
    out = total


def premake(m, n, k, dtype, rows, columns, depth):
    tensors = (
        Tensor(shape=(m, k), dtype=dtype),
        Tensor(shape=(k, n), dtype=dtype),
        Tensor(shape=(m, n), dtype=dtype),
    )
    arrangement = functools.partial(tiles, rows=rows, columns=columns, depth=depth)
    return arrangement, multiply, tensors


product = ninetoothed.build(
    premake,
    tuple(
        (
            (),
            {"m": 64, "n": 64, "k": 64, "dtype": dtype, "rows": rows, "columns": 32, "depth": 32},
            {"num_warps": warps, "num_stages": 2},
        )
        for dtype in (ninetoothed.float16, ninetoothed.bfloat16)
        for rows in (32, 64)
        for warps in (4,)
    ),
    meta_parameters=("rows", "columns", "depth"),
    kernel_name="product",
    output_dir="never",
    lazy=True,
)
""",
    "bounded": """\
import ninetoothed
from ninetoothed import Tensor


def tiles(x, out):
    return x.tile((1, 1, 32)), out.tile((1, 1, 32))


def double(x, out):
    out = x + x


def premake(columns, dtype):
    options = ({"upper_bound": 4}, None, None)
    shape = (None, None, columns)
    return tiles, double, tuple(
        Tensor(shape=shape, shape_options=options, dtype=dtype) for _ in range(2)
    )


bounded = ninetoothed.build(
    premake,
    (((64, ninetoothed.float16), {}, {}),),
    kernel_name="bounded",
    output_dir="never",
    lazy=True,
)
""",
}
"""Function -> a source with a call of `ninetoothed.build`."""

CUTE = """\
from cuda.bindings.driver import CUstream
from cutlass import cute


@cute.kernel
def print_kernel(x: cute.Tensor):
    cute.printf("x: {}", x)


@cute.jit
def shown(x: cute.Tensor, stream: CUstream):
    print_kernel(x).launch(grid=(1, 1, 1), block=(1, 1, 1), stream=stream)
"""
CUTE_REMOVED = CUTE.replace(
    "from cuda.bindings.driver import CUstream\nfrom cutlass import cute\n",
    "import cutlass.cute as cute\nimport cutlass.cute.cuda as cuda\n",
).replace("CUstream", "cuda.CUstream")
CUTE_EXPORTED = (
    CUTE
    + """\


compiled = cute.compile(shown)
compiled.export_to_c(file_path="./never", file_name="shown", function_prefix="shown")
"""
)
CUTE_LOADED = (
    CUTE
    + """\


import torch
from cutlass.cute.runtime import from_dlpack

module = cute.runtime.load_module("./never/shown.o")
x = torch.arange(32, dtype=torch.float32, device="cuda").reshape(4, 8)
module.shown(from_dlpack(x).mark_layout_dynamic(), stream=CUstream(0))
"""
)

TILELANG = """\
import itertools

import tilelang
import tilelang.language as T


@T.macro
def multiply(a, b, c, m, n, k, rows, columns, depth):
    with T.Kernel(T.ceildiv(m, rows), T.ceildiv(n, columns), threads=128) as (i, j):
        left = T.alloc_shared((rows, depth), a.dtype)
        right = T.alloc_shared((depth, columns), b.dtype)
        total = T.alloc_fragment((rows, columns), c.dtype)
        T.clear(total)
        for at in T.Pipelined(T.ceildiv(k, depth), num_stages=2):
            T.copy(a[i * rows, at * depth], left)
            T.copy(b[at * depth, j * columns], right)
            T.gemm(left, right, total)
        T.copy(total, c[i * rows, j * columns])


@tilelang.jit
def sized(a, b, out_dtype: T.dtype = T.float32, rows: int = 64, columns: int = 64, depth: int = 32):
    m, n, k = T.const("m, n, k")
    a: T.Tensor[[m, k], T.float16]
    b: T.Tensor[[k, n], T.float16]
    c = T.empty((m, n), out_dtype)
    multiply(a, b, c, m, n, k, rows, columns, depth)
    return c


@tilelang.jit
def dynamic(a, b):
    m, n, k = T.dynamic("m, n, k")
    a: T.Tensor[[m, k], T.float16]
    b: T.Tensor[[k, n], T.float16]
    c = T.empty((m, n), T.float32)
    multiply(a, b, c, m, n, k, 64, 64, 32)
    return c


@tilelang.jit
def counted(a, b, m, n, k):
    m: T.int32
    n: T.int32
    k: T.int32
    a: T.Tensor[[m, k], T.float16]
    b: T.Tensor[[k, n], T.float16]
    c = T.empty((m, n), T.float32)
    multiply(a, b, c, m, n, k, rows=64, columns=64, depth=32)
    return c


@tilelang.jit
def indirect(x):
    m = T.const("m")
    x: T.Tensor[[m * 2, m * 3], T.float32]
    with T.Kernel(1) as _:
        x[0, 0]


@tilelang.jit
def idle(a, b):
    m, n = T.const("m, n")
    a: T.Tensor[[m, n], T.float16]
    b: T.Tensor[[m, n], T.float16]
    with T.Kernel(1) as _:
        pass


@T.macro
def both(x):
    return T.sin(T.cast(x, "float32")), T.cos(T.cast(x, "float32"))


@T.prim_func
def pair():
    with T.Kernel(32) as x:
        s, c = both(x)
        total = s + c


def placeholders():
    return [
        {"a": T.Tensor((64, 64), T.float32), "b": T.Tensor((64, 64), T.float32), "rows": rows}
        for rows, _ in itertools.product((32, 64), repeat=2)
    ]


sized.par_compile(placeholders())
KERNEL = sized.compile(T.Tensor((64, 64), T.float16), T.Tensor((64, 64), T.float16), rows=64)
"""

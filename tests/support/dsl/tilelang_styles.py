"""Kernels in every way that TileLang offers, and an object of one called as its launcher would."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from kbuild.ops.image import UnitImage

SOURCE = """\
import tilelang
import tilelang.language as T

SIZE = T.dynamic("size")


@T.macro
def doubled(value):
    return value * 2


@T.macro
def copied(source, target, count, factor):
    with T.Kernel(T.ceildiv(count, 64), threads=64) as block:
        for i in T.Parallel(64):
            if block * 64 + i < count:
                target[block * 64 + i] = source[block * 64 + i] * factor


@tilelang.jit
def eager(x, out):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out: T.Tensor[[n], T.float32]
    copied(x, out, n, 2)


@tilelang.jit
def annotated(x: T.Tensor((SIZE,), "float32")):
    out = T.empty((SIZE,), "float32")
    copied(x, out, SIZE, 2)
    return out


@tilelang.jit(out_idx=[-1])
def lazy(dtype="float32"):
    m = T.symbolic("m")

    @T.prim_func
    def main(x: T.Tensor((m,), dtype), out: T.Tensor((m,), dtype)):
        copied(x, out, m, 2)

    return main


def factory(count, dtype="float32"):
    @T.prim_func
    def main(x: T.Tensor((count,), dtype), out: T.Tensor((count,), dtype)):
        copied(x, out, count, 2)

    return main


@T.prim_func
def alone(x: T.Tensor((SIZE,), "float32"), out: T.Tensor((SIZE,), "float32")):
    with T.Kernel(T.ceildiv(SIZE, 64), threads=64) as block:
        for i in T.Parallel(64):
            if block * 64 + i < SIZE:
                out[block * 64 + i] = doubled(x[block * 64 + i])


@tilelang.jit
def pointers():
    @T.prim_func
    def main(x: T.ptr, out: T.ptr, count: T.int32):
        source = T.make_tensor(x, (count,), "float32")
        target = T.make_tensor(out, (count,), "float32")
        copied(source, target, count, 2)

    return main


@tilelang.jit
def matched(count):
    @T.prim_func
    def main(x: T.handle, out: T.handle):
        source = T.match_buffer(x, (count,), "float32")
        target = T.match_buffer(out, (count,), "float32")
        copied(source, target, count, 2)

    return main


@tilelang.jit
def only_names(x, *, block, dtype: T.dtype = T.float32):
    n = T.dynamic("n")
    x: T.Tensor[[n], dtype]
    out = T.empty([n], dtype)
    with T.Kernel(T.ceildiv(n, block), threads=64) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = doubled(x[at * block + i])
    return out


@tilelang.jit
def strided(x):
    n, m, across, down = T.dynamic("n, m, across, down")
    x: T.StridedTensor[[n, m], [across, down], T.float32]
    out = T.empty([n, m], T.float32)
    with T.Kernel(n, threads=64) as row:
        for i in T.Parallel(m):
            out[row, i] = x[row, i] * 2
    return out


@tilelang.jit
def strided_rows(x):
    n = T.dynamic("n")
    m, across = T.const("m, across")
    x: T.StridedTensor[[n, m], [across, 1], T.float32]
    out = T.empty([n, m], T.float32)
    with T.Kernel(n, threads=64) as row:
        for i in T.Parallel(m):
            out[row, i] = x[row, i] * 2
    return out


@tilelang.jit
def wide(x):
    n = T.dynamic("n")
    m = T.const("m")
    x: T.Tensor[[n, m], T.float32]
    out = T.empty([n, m], T.float32)
    with T.Kernel(n, threads=64) as row:
        for i in T.Parallel(m):
            out[row, i] = x[row, i] * 2
    return out


@tilelang.jit
def halves(x):
    n = T.dynamic("n")
    m = T.const("m")
    x: T.Tensor[[n, m * 2], T.float32]
    out = T.empty([n, m], T.float32)
    with T.Kernel(n, threads=64) as row:
        for i in T.Parallel(m):
            out[row, i] = x[row, i] + x[row, m + i]
    return out


@tilelang.jit
def numbers(
    x, a: T.float32, k: T.int32, half: T.float32 = 0.5, three: T.int64 = 3, yes: T.bool = True
):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, 64), threads=64) as block:
        for i in T.Parallel(64):
            if block * 64 + i < n:
                out[block * 64 + i] = (
                    x[block * 64 + i] * a * half + k + three + T.if_then_else(yes, 1.0, 0.0)
                )
    return out


@tilelang.jit
def both(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    more = T.empty([n], T.float32)
    less = T.empty((n,), dtype="float32")
    with T.Kernel(T.ceildiv(n, 64), threads=64) as block:
        for i in T.Parallel(64):
            if block * 64 + i < n:
                more[block * 64 + i] = x[block * 64 + i] + 1
                less[block * 64 + i] = x[block * 64 + i] - 1
    return more, less


def space():
    return [dict(block=block, dtype=dtype) for block in (64, 128) for dtype in (T.float32,)]


@tilelang.autotune(configs=space)
@tilelang.jit
def tuned(x, block: int = 32, dtype: T.dtype = T.float16):
    n = T.dynamic("n")
    x: T.Tensor[[n], dtype]
    out = T.empty([n], dtype)
    with T.Kernel(T.ceildiv(n, block), threads=64) as at:
        for i in T.Parallel(block):
            if at * block + i < n:
                out[at * block + i] = doubled(x[at * block + i])
    return out


@tilelang.autotune(
    configs=[{"block": 64}, {"block": 128, "pass_configs": {"tl.disable_warp_specialized": True}}],
    do_not_specialize=["rows"],
)
@tilelang.jit(out_idx=[-1])
def tuned_factory(rows, columns, block=32, dtype="float32"):
    @T.prim_func
    def main(
        x: T.Tensor((rows, columns), dtype),
        scale: T.int32,
        more: T.float32,
        out: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(rows, threads=64) as row:
            for i in T.Parallel(columns):
                out[row, i] = x[row, i] * scale + more

    return main


@tilelang.autotune(configs=lambda rows: [{"block": 64 if rows > 64 else 128}])
@tilelang.jit(out_idx=[-1])
def asks(rows, block=32):
    return factory(rows)


@tilelang.autotune(configs={"block": [64, 128]})
@tilelang.jit(out_idx=[-1])
def grid(rows, block=32):
    return factory(rows)


@tilelang.jit
def scratch(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    between = T.empty([n], T.float32)
    out = T.empty([n], T.float32)
    copied(x, between, n, 2)
    return out


@tilelang.jit
def unnamed(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    (out,) = [T.empty([n], T.float32)]
    copied(x, out, n, 2)
    return out


@tilelang.jit
def product_of_sizes(x):
    n = T.dynamic("n")
    x: T.Tensor[[n * 2], T.float32]
    out = T.empty([n], T.float32)
    copied(x, out, n, 2)
    return out


@tilelang.jit
def any_options(x, **options):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    copied(x, out, n, 2)
    return out


@tilelang.jit
def stored(count):
    found = factory(count=count)
    return found


@tilelang.jit
def sized_by_numbers(x, count, factor):
    x: T.Tensor[[count], T.float32]
    out = T.empty([count], T.float32)
    copied(x, out, count, factor)
    return out


@tilelang.jit
def applied(x, function):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, 64), threads=64) as block:
        for i in T.Parallel(64):
            if block * 64 + i < n:
                out[block * 64 + i] = function(x[block * 64 + i])
    return out


def made_with(factor):
    @tilelang.jit
    def within(x):
        n = T.dynamic("n")
        x: T.Tensor[[n], T.float32]
        out = T.empty([n], T.float32)
        copied(x, out, n, factor)
        return out

    return within


closed = made_with(2)


def listed(rows, columns, turned):
    shape, other = ((columns, rows) if turned else (rows, columns)), [rows] + [columns]

    @T.prim_func
    def main(x: T.Tensor(shape, "float32"), out: T.Tensor(other, "float32")):
        with T.Kernel(rows, threads=64) as row:
            for i in T.serial(columns):
                out[row, i] = (x[i, row] if turned else x[row, i]) * 2

    return main


def power(rows, columns):
    half = (1.0 / columns) ** 0.5

    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float32"), out: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=64) as row:
            for i in T.serial(columns):
                out[row, i] = x[row, i] * half

    return main


@tilelang.jit
def workspace(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(1, threads=64) as block:
        between = T.alloc_global((64,), "float32")
        between[0] = x[0]
        out[0] = between[0]
    return out


@tilelang.jit
def unbound(count):
    return [factory(count)][0]


KERNELS = eager.par_compile([{"x": T.Tensor((64,), T.float32)}, {"x": T.Tensor((9,), T.float32)}])
ONE, OTHER = stored.compile(64), tilelang.compile(factory(64), out_idx=[1])
TUNED = tuned_factory(64, 64)
"""
_KINDS = {"fp32": ctypes.c_float, "i32": ctypes.c_int32, "i64": ctypes.c_int64}


def called(
    one: UnitImage, folder: Path, tensors: Mapping[str, torch.Tensor], **numbers: float
) -> str:
    """Call an object for the CPU; what it says where it refuses."""
    loaded = _linked(one, folder)
    values = [_value(p.name, p.type, tensors, numbers) for p in one.image.parameters]
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(_address(loaded, "entry"))
    if entry(*values, None) == 0:
        return ""
    said = ctypes.CFUNCTYPE(ctypes.c_char_p)(_address(loaded, "error"))
    return str(said().decode())


def _linked(one: UnitImage, folder: Path) -> ctypes.CDLL:
    """A library that says where the object's functions are, which are hidden."""
    folder.mkdir(exist_ok=True)
    symbol = one.image.entry
    made, source = folder / f"{symbol}.o", folder / f"{symbol}.c"
    made.write_bytes(one.code)
    source.write_text(
        f"int {symbol}(void);\nconst char* {symbol}_error(void);\n"
        f"void* entry(void) {{ return (void*){symbol}; }}\n"
        f"void* error(void) {{ return (void*){symbol}_error; }}\n"
    )
    library = made.with_suffix(".so")
    command = ("gcc", "-shared", "-fPIC", "-o", str(library), str(source), str(made), "-lm")
    subprocess.run((*command, "-lstdc++"), check=True)  # noqa: TID251
    return ctypes.CDLL(str(library))


def _address(library: ctypes.CDLL, name: str) -> int:
    where = getattr(library, name)
    where.restype = ctypes.c_void_p
    return int(where())


def _value(
    name: str, kind: str, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, float]
) -> object:
    tensor, _, what = name.partition(".")
    if tensor not in tensors:
        return _KINDS[kind](numbers[name])  # type: ignore[arg-type]
    found = tensors[tensor]
    if not what:
        return ctypes.c_void_p(found.data_ptr())
    if what == "numel":
        return _KINDS[kind](found.numel())
    word, _, axis = what.partition(".")
    sizes = found.shape if word == "shape" else found.stride()
    return _KINDS[kind](sizes[int(axis)])

"""Every kind of argument that a CuTe function may have: compiled for all archs, and called."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.dsl.launcher.objects import object_files
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES
from kbuild.system import rendering
from tests.support.dsl.cute_calls import Linked, Tensor, joined
from tests.support.dsl.cute_kernels import OLD, VERSION, CuteProject, cache_with_dsl, shop

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]
TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
VERSIONS = [
    VERSION,
    pytest.param("4.5.3", marks=pytest.mark.skipif(OLD not in os.environ, reason=OLD)),
]
HEAD = """\
import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Boolean, Float32, Float64, Int32, Int64, cute


"""
NUMBERS = f"""{HEAD}\
@cute.kernel
def kernel(out: cute.Tensor, i: Int32, l: Int64, f: Float32, d: Float64, flag: Boolean):
    value = f + d.to(Float32) + i.to(Float32) + l.to(Float32)
    if flag:
        value += 1.0
    out[0] = value


@cute.jit
def numbers(
    out: cute.Tensor, i: Int32, l: Int64, f: Float32, d: Float64, flag: Boolean, stream: CUstream
):
    kernel(out, i, l, f, d, flag).launch(grid=(i, 1, 1), block=(32, 1, 1), stream=stream)
"""
NUMBERS_OP = """
[[kernel.k.op]]
schema = "numbers(Tensor(a!) out, int i, int l, float f, float d, bool flag) -> ()"
shapes = { out = ["N"] }
dtypes = ["float32"]
contiguous = true
int64 = ["l"]
"""
STRIDED = f"""{HEAD}\
@cute.kernel
def kernel(x: cute.Tensor, out: cute.Tensor):
    row, _, _ = cute.arch.block_idx()
    column, _, _ = cute.arch.thread_idx()
    if column < x.shape[1]:
        out[row, column] = x[row, column]


@cute.jit
def strided(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(64, 1, 1), stream=stream)
"""
STRIDED_OP = """
[[kernel.k.op]]
schema = "strided(Tensor x, Tensor(a!) out) -> ()"
shapes = { x = ["M", "N"], out = ["M", "N"] }
dtypes = ["float32"]
divisible = ["N", "x.stride.0"]
ones = ["x.stride.1"]
"""
TUPLES = f"""{HEAD}\
@cute.kernel
def kernel(x: cute.Tensor, shape, coord, stride):
    layout = cute.make_layout(shape, stride=stride)
    x[cute.crd2idx(coord, layout)] = Float32(cute.size(layout))


@cute.jit
def tuples(x: cute.Tensor, shape, coord, stride, stream: CUstream):
    kernel(x, shape, coord, stride).launch(grid=(shape[0], 1, 1), block=(1, 1, 1), stream=stream)
"""
TUPLES_OP = """
[[kernel.k.op]]
schema = "tuples(Tensor(a!) x, int m, int n, int at) -> ()"
shapes = { x = ["N"] }
dtypes = ["float32"]
contiguous = true
args = { shape = ["m", "n"], coord = ["at", "at + 1"], stride = ["n", 1] }
"""
CONSTANTS = f"""{HEAD}\
@cute.kernel
def kernel(out: cute.Tensor, scale: cutlass.Constexpr, wide: cutlass.Constexpr):
    out[0] = (wide(2.0) * scale).to(out.element_type)


@cute.jit
def constants(
    out: cute.Tensor,
    blocks: cutlass.Constexpr,
    scale: cutlass.Constexpr,
    twice: cutlass.Constexpr,
    mode: cutlass.Constexpr,
    wide: cutlass.Constexpr,
    stream: CUstream,
):
    more = 2 if cutlass.const_expr(twice and mode == "max") else 1
    kernel(out, scale, wide).launch(grid=(blocks * more, 1, 1), block=(32, 1, 1), stream=stream)
"""
CONSTANTS_OP = """
[[kernel.k.op]]
schema = "constants(Tensor(a!) out) -> ()"
shapes = { out = ["N"] }
dtypes = ["float32"]
contiguous = true
constants = { twice = true, mode = { string = "max" }, wide = { dtype = "float32" } }
configs = [{ blocks = 3, scale = 0.5 }, { blocks = 5, scale = 0.25 }]
"""
X, OUT = 0x7F0000000000, 0x7F0000100000


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cache_with_dsl(tmp_path_factory)


@pytest.fixture(params=VERSIONS)
def bench(cache: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CuteProject]:
    with shop(cache, tmp_path / "project", version=request.param) as opened:
        yield opened


def compiled(bench: CuteProject, op: str, source: str) -> list[UnitImage]:
    """The objects for the first target; there are as many for the others."""
    made = bench.compiled(op, source, *TARGETS)
    first = [one for one in made if one.unit.target.arch == TARGETS[0]]
    assert len(made) == len(first) * len(TARGETS)
    assert {one.image.loading for one in made} == {"library"}
    return first


def linked(bench: CuteProject, one: UnitImage, folder: Path) -> Linked:
    file = folder / f"{one.image.entry}.o"
    file.write_bytes(one.code)
    return Linked(one.image.entry, [str(file), *map(str, archives(bench))], folder)


def archives(bench: CuteProject) -> tuple[Path, ...]:
    place = bench.compiler.prepare(bench.only)
    return LANGUAGES.get("cute").linked(place.root, bench.toolchain, "cuda13").archives


def plain(made: list[UnitImage]) -> UnitImage:
    return next(one for one in made if not one.unit.aligned)


def test_numbers(bench: CuteProject, tmp_path: Path) -> None:
    one = plain(compiled(bench, NUMBERS_OP, NUMBERS))
    kinds = [(p.kind, p.type) for p in one.image.parameters]
    assert kinds == [("tensor", "*fp32"), ("int", "i32"), ("int", "i64"), ("float", "fp64"),
                     ("float", "fp64"), ("int", "u1")]  # fmt: skip
    call = linked(bench, one, tmp_path)
    out = Tensor(OUT, (4,), (1,))
    assert call.call(out, 7, 1 << 40, 0.5, 1 / 3, True, parameters=6) == ""
    assert struct.unpack_from("<Q", call.value(0)) == (OUT,)
    assert struct.unpack_from("<i", call.value(1)) == (7,)
    assert struct.unpack_from("<q", call.value(2)) == (1 << 40,)
    assert struct.unpack_from("<f", call.value(3)) == (0.5,)
    assert struct.unpack_from("<d", call.value(4)) == (1 / 3,)
    assert call.value(5)[0] & 1 == 1
    assert (call.grid, call.stream) == (7, 0x5742)
    assert call.call(out, 3, -1, 1.0, 1.0, False, parameters=6, stream=0x99) == ""
    assert (call.grid, call.stream, call.value(5)[0] & 1) == (3, 0x99, 0)
    assert "Expects 6 parameters" in call.call(out, 7, 1, 0.5, 0.5)


def test_shapes_and_strides(bench: CuteProject, tmp_path: Path) -> None:
    made = compiled(bench, STRIDED_OP, STRIDED)
    call = linked(bench, plain(made), tmp_path)
    x, out = Tensor(X, (5, 3), (17, 2)), Tensor(OUT, (5, 3), (3, 1))
    assert call.call(x, out, parameters=2) == ""
    assert call.grid == 5
    assert struct.unpack_from("<Q", call.value(0)) == (X,)
    numbers = struct.unpack_from("<14i", call.value(0), 8)
    assert {5, 3, 17, 2} <= set(numbers)
    assert "hape" in call.call(x, Tensor(OUT, (4, 3), (3, 1)), parameters=2)
    fast = linked(bench, next(one for one in made if one.unit.aligned), tmp_path)
    aligned = Tensor(X, (5, 32), (48, 1)), Tensor(OUT, (5, 32), (32, 1))
    assert fast.call(*aligned, parameters=2) == ""
    assert fast.call(Tensor(X + 4, (5, 32), (48, 1)), aligned[1]) != ""
    assert fast.call(Tensor(X, (5, 32), (48, 2)), aligned[1]) != ""


def test_tuples(bench: CuteProject, tmp_path: Path) -> None:
    one = plain(compiled(bench, TUPLES_OP, TUPLES))
    names = [p.name for p in one.image.parameters]
    assert names == ["x", "shape.0", "shape.1", "coord.0", "coord.1", "stride.0", "stride.1"]
    call = linked(bench, one, tmp_path)
    given = (6, 8, 2, 3, 8, 1)
    assert call.call(Tensor(X, (64,), (1,)), *given, parameters=7) == ""
    assert call.grid == 6
    passed = tuple(struct.unpack_from("<i", call.value(at))[0] for at in range(1, 7))
    assert passed == given


def test_constants(bench: CuteProject, tmp_path: Path) -> None:
    made = [one for one in compiled(bench, CONSTANTS_OP, CONSTANTS) if not one.unit.aligned]
    for one, blocks in zip(made, (3, 5), strict=True):
        assert [p.name for p in one.image.parameters] == ["out"]
        assert one.image.constants["wide"] == "float32"
        call = linked(bench, one, tmp_path)
        assert call.call(Tensor(OUT, (1,), (1,)), parameters=1) == ""
        assert call.grid == 2 * blocks


STATIC = f"""{HEAD}\
@cute.kernel
def kernel(x: cute.Tensor, out: cute.Tensor):
    row, _, _ = cute.arch.block_idx()
    for column in cutlass.range_constexpr(x.shape[1]):
        out[row, column] = x[row, column]


@cute.jit
def static(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    assert cute.is_static(x.shape[1]) and cute.is_static(out.stride[0])
    kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(1, 1, 1), stream=stream)
"""
STATIC_OP = """
[[kernel.k.op]]
schema = "static(Tensor x, Tensor(a!) out) -> ()"
shapes = { x = ["M", "N"], out = ["M", "N"] }
dtypes = ["float32"]
contiguous = ["out"]
constants = { N = { value = "N", choices = [3, 8] } }
"""


def test_a_dimension_that_choices_fix_is_static(bench: CuteProject, tmp_path: Path) -> None:
    """The function takes no constant for it: it sees the number in the tensors' layouts."""
    made = [one for one in compiled(bench, STATIC_OP, STATIC) if not one.unit.aligned]
    assert [dict(one.unit.constants) for one in made] == [{"N": 3}, {"N": 8}]
    for one, size in zip(made, (3, 8), strict=True):
        call = linked(bench, one, tmp_path)
        x, out = Tensor(X, (5, size), (17, 2)), Tensor(OUT, (5, size), (size, 1))
        assert call.call(x, out, parameters=2) == ""
        assert call.grid == 5
        other = Tensor(X, (5, size + 1), (17, 2))
        assert "hape" in call.call(other, out, parameters=2)


STANDIN = """\
#include <stdint.h>
int INIT_own(void**);
int READY_own(void**, int32_t);
static void* library;
__attribute__((visibility("hidden"))) int INIT(void** given) { return *given = library, 0; }
__attribute__((visibility("hidden"))) int READY(void** given, int32_t device) {
  return given != 0 && device >= 0 ? 0 : 1;
}
int prepare(int device) {
  if (library == 0 && INIT_own(&library) != 0) return 1;
  return READY_own(&library, device);
}
"""


UNORDERED = f"""{HEAD}\
@cute.kernel
def first(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = x[thread]


@cute.kernel
def second(out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = out[thread] + out[thread]


@cute.jit
def no_stream(x: cute.Tensor, out: cute.Tensor):
    first(x, out).launch(grid=(1, 1, 1), block=(64, 1, 1))
    second(out).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.jit
def forgotten(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    second(out).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)
    first(x, out).launch(grid=(1, 1, 1), block=(64, 1, 1))
"""
UNORDERED_OP = """
[[kernel.k.op]]
schema = "{name}(Tensor x, Tensor(a!) out) -> ()"
shapes = {{ x = ["N"], out = ["N"] }}
dtypes = ["float32"]
contiguous = true
"""


def launching(folder: Path) -> tuple[str, str]:
    """The launcher's part of a launch."""
    source = folder / "launch.cpp"
    source.write_text(
        "#include <cstddef>\n"
        '#define KBUILD_FFI extern "C" __attribute__((weak, visibility("hidden")))\n'
        f"namespace {{\n{rendering.read('launcher/object_launch.h')}}}\n"
        'extern "C" void set_stream(void* stream) { kbuild::launch_stream = stream; }\n'
    )
    return str(source), "-lstdc++"


@pytest.mark.parametrize("name", ["no_stream", "forgotten"])
def test_every_launch_is_on_the_stream_of_the_call(
    bench: CuteProject, tmp_path: Path, name: str
) -> None:
    """A host function need not take a stream, nor hand it to every launch."""
    one = plain(compiled(bench, UNORDERED_OP.format(name=name), UNORDERED))
    (tmp_path / "alone").mkdir()
    alone = linked(bench, one, tmp_path / "alone")
    tensors = [Tensor(OUT, (64,), (1,)), Tensor(OUT + 4096, (64,), (1,))]
    assert alone.call(*tensors, stream=0x5742) == ""
    assert alone.stream == 0  # the last launch, without a launcher
    for path, data in object_files("aot", "k", [one]).items():
        (tmp_path / Path(path).name).write_bytes(data)
    whole = tmp_path / "whole.o"
    joined([tmp_path / f"{one.image.entry}.o"], archives(bench), tmp_path / "k.ld", whole)
    call = Linked(one.image.entry, [str(whole), *launching(tmp_path)], tmp_path)
    set_stream = call.function("set_stream")
    set_stream.argtypes = [ctypes.c_size_t]
    for stream in (0x5742, 0x9000):
        set_stream(stream)
        assert call.call(*tensors, stream=stream) == ""
        assert call.stream == stream
        assert call.events.count("launch 0") == 2


def test_a_launcher_loads_for_one_device(bench: CuteProject, tmp_path: Path) -> None:
    """The runtime asks two functions, which are the launcher's in a joined object."""
    one = plain(compiled(bench, NUMBERS_OP, NUMBERS))
    for path, data in object_files("aot", "k", [one]).items():
        (tmp_path / Path(path).name).write_bytes(data)
    joined(
        [tmp_path / f"{one.image.entry}.o"], archives(bench), tmp_path / "k.ld", tmp_path / "j.o"
    )
    aliases = (tmp_path / "k.ld").read_text().splitlines()
    init, ready = (line.partition("_own = ")[0] for line in aliases)
    (tmp_path / "standin.c").write_text(
        f"#define INIT {init}\n#define READY {ready}\n"
        f"#define INIT_own {init}_own\n#define READY_own {ready}_own\n{STANDIN}"
    )
    given = [str(tmp_path / "j.o"), str(tmp_path / "standin.c"), *launching(tmp_path)]
    call = Linked(one.image.entry, given, tmp_path)
    call.begin()
    assert call.function("prepare")(1) == 0
    assert call.events == ["library 0", "asked 1", "ready 1"]
    out = Tensor(OUT, (4,), (1,), device=1)
    assert call.call(out, 7, 1, 0.5, 0.5, True, parameters=2) == ""
    assert call.events == ["launch 1"]
    assert struct.unpack_from("<i", call.value(1)) == (7,)
    call.begin()
    assert call.function("prepare")(2) == 209
    assert call.events == ["asked 2"]
    assert call.call(out, 7, 1, 0.5, 0.5, True) == ""
    assert call.events == ["launch 1"]

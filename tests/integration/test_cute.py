"""CuTe DSL compiles without a GPU: objects, what they assume, errors in words. Fetches 110 MB."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from kbuild.dsl.languages.cute.export import CuteExport, export_cute
from kbuild.ops.image import UnitImage
from kbuild.ops.unit import ImageTarget
from kbuild.system.errors import BuildError
from kbuild.system.processes import LocalRunner
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.dsl.cute_kernels import VERSION, CuteProject, cache_with_dsl, shop

pytestmark = pytest.mark.network
SOURCE = """\
import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32, cute


@cute.kernel
def kernel(x, extra, out, factor, shape, flag, wide: cutlass.Constexpr, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * threads + thread
    if i < shape[0] * shape[1]:
        value = x[i].to(wide) * factor
        if cutlass.const_expr(extra is not None):
            value += extra[i].to(wide)
        if flag:
            value += 1.0
        out[i] = value.to(out.element_type)


@cute.jit
def add(
    x: cute.Tensor, extra, out: cute.Tensor, factor: Float32, shape, flag: cutlass.Boolean,
    wide: cutlass.Constexpr, threads: cutlass.Constexpr, stream: CUstream,
):
    blocks = cute.ceil_div(shape[0] * shape[1], threads)
    kernel(x, extra, out, factor, shape, flag, wide, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )


def helper(x):
    return x
"""
OP = """
[[kernel.k.op]]
schema = "add(Tensor x, Tensor? extra, float factor, bool flag) -> Tensor out"
shapes = { x = ["..."], extra = "x", out = "x" }
dtypes = ["float16"]
contiguous = true
args = { shape = ["numel(x)", 1] }
constants = { wide = { dtype = "float32" } }
configs = [{ threads = 128 }]
"""
STRIDED = """\
from cuda.bindings.driver import CUstream
from cutlass import cute


@cute.kernel
def kernel(x, out):
    row, _, _ = cute.arch.block_idx()
    column, _, _ = cute.arch.thread_idx()
    out[row, column] = x[row, column]


@cute.jit
def copy(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(x.shape[1], 1, 1), stream=stream)
"""
HOPPER = """\
from cutlass import BFloat16, Float32, cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import hopper_helpers as hopper
"""
WGMMA = (
    "BFloat16, BFloat16, warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.K, Float32, "
    "(1, 1, 1), (64, 64)"
)
STRIDED_OP = """
[[kernel.k.op]]
schema = "copy(Tensor x, Tensor(a!) out) -> ()"
shapes = { x = ["M", 64], out = ["M", 64] }
dtypes = ["bfloat16"]
divisible = ["M", "x.stride.0"]
ones = ["x.stride.1"]
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with CuTe DSL, for all tests in whatever process."""
    return cache_with_dsl(tmp_path_factory)


@pytest.fixture
def bench(cache: Path, tmp_path: Path) -> Iterator[CuteProject]:
    with shop(cache, tmp_path / "project") as opened:
        yield opened


def facts(one: UnitImage) -> tuple[str, str, str, list[tuple[str, str, str]]]:
    image = one.image
    passed = [(p.kind, p.type, p.name) for p in image.parameters]
    return image.arch, image.kind, image.convention, passed


def archs_of(code: bytes, folder: Path) -> list[str]:
    """What the machine code in an object is for."""
    file = folder / "object.o"
    file.write_bytes(code)
    return [image.arch for image in read_device_code(file).images]


def test_objects_for_every_arch(bench: CuteProject, tmp_path: Path) -> None:
    targets = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
    given = OP.replace("Tensor? extra", "Tensor extra")
    made = (*bench.compiled(given, SOURCE, *targets), *bench.compiled(OP, SOURCE, "sm_90a"))
    assert len(made) == 2 * len(targets) + 2 * 2  # aligned and plain; with and without `extra`
    tail = [("float", "fp64", "factor"), ("int", "i32", "shape.0"), ("int", "i32", "shape.1"),
            ("int", "u1", "flag")]  # fmt: skip
    tensors = {
        (): [("flat", "*fp16", name) for name in ("x", "extra", "out")],
        ("extra",): [("flat", "*fp16", name) for name in ("x", "out")],
    }
    for one in made:
        expected = [*tensors[one.unit.absent], *tail]
        assert facts(one) == (one.unit.target.arch, "object", "tvm-ffi", expected)
        names = {name for _, _, name in tensors[one.unit.absent]}
        assert one.image.divisible == (names if one.unit.aligned else frozenset())
        wanted = one.unit.target.arch.removeprefix("sm_")
        digits = wanted.rstrip("a")
        assert archs_of(one.code, tmp_path) == [
            f"{digits[:-1]}.{digits[-1]}{wanted[len(digits) :]}"
        ]
    assert len({one.image.entry for one in made}) == len(made) - 2  # two were asked for twice
    assert {one.image.compiler["nvidia-cutlass-dsl"] for one in made} == {VERSION}


BRANCHING = """\
import cutlass
from cuda.bindings.driver import CUstream
from cutlass import cute


@cute.kernel
def kernel(x, out, each: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for i in cutlass.range_constexpr(each):
        at = (block * 64 + thread) * each + i
        if at < x.shape[0]:
            out[at] = x[at]


@cute.jit
def copy(x: cute.Tensor, out: cute.Tensor, each: cutlass.Constexpr, stream: CUstream):
    n = each if cutlass.const_expr(x.iterator.alignment >= 16) else 1
    blocks = cute.ceil_div(x.shape[0], 64 * n)
    kernel(x, out, n).launch(grid=(blocks, 1, 1), block=(64, 1, 1), stream=stream)
"""
BRANCHING_OP = """
[[kernel.k.op]]
schema = "copy(Tensor x) -> Tensor out"
shapes = { x = ["N"], out = ["N"] }
dtypes = ["float32", "float16"]
contiguous = true
configs = [{ each = 1 }, { each = 2 }, { each = 4 }, { each = 8 }]
"""
NEWER_THAN_ALL_CPUS_HAVE = re.compile(r"\t(v[a-z0-9]+)\s|[yz]mm\d", re.MULTILINE)


def test_one_object_for_candidates_that_come_to_the_same(bench: CuteProject) -> None:
    """The plain code does not look at what the candidates differ in."""
    made = bench.compiled(BRANCHING_OP, BRANCHING, "sm_90a")
    assert len(made) == 16
    for dtype in ("float32", "float16"):
        own = [one for one in made if dict(one.unit.dtypes)["x"] == dtype]
        plain = [one for one in own if not one.unit.aligned]
        assert len({one.image.entry for one in plain}) == len({one.code for one in plain}) == 1
        assert [one.image.constants["each"] for one in plain] == [1, 2, 4, 8]
        aligned = [one.image.entry for one in own if one.unit.aligned]
        assert len(set(aligned)) == 4
        assert plain[0].image.entry not in aligned


def newer_instructions(code: bytes, folder: Path) -> list[str]:
    """Those of the host's part that not every CPU has."""
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("needs objdump")
    file = folder / "host.o"
    file.write_bytes(code)
    said = LocalRunner().run([objdump, "-d", "--no-show-raw-insn", str(file)])
    assert "ret" in said.output
    return NEWER_THAN_ALL_CPUS_HAVE.findall(said.output)


def test_the_same_bytes_in_another_folder(cache: Path, tmp_path: Path) -> None:
    codes = []
    for place in ("here", "there/deeper"):
        with shop(cache, tmp_path / place, keeps=False) as opened:
            made = opened.compiled(OP, SOURCE, "sm_90a")
            codes.append([(one.image.entry, one.code) for one in made])
    assert codes[0] == codes[1]
    assert not any(b"/tmp/" in code or str(tmp_path).encode() in code for _, code in codes[0])


CLASS = """\
import numpy as np
import torch
import cutlass
import cutlass.torch as cutlass_torch
from cuda.bindings.driver import CUstream
from cutlass import cute

DTYPES = {torch.float16: cutlass.Float16}
THREADS = 256 if torch.cuda.get_device_capability()[0] >= 9 else 128


class Scale:
    def __init__(self, wide: type[cutlass.Numeric], tile: tuple[int, int], threads: int = THREADS):
        self.wide, (self.rows, self.columns), self.threads = wide, tile, threads

    @cute.kernel
    def kernel(self, x, out):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * self.threads + thread
        if i < cute.size(x):
            out[i] = (x[i].to(self.wide) * self.columns).to(out.element_type)

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor, stream: CUstream):
        blocks = cute.ceil_div(cute.size(x), self.threads)
        self.kernel(x, out).launch(
            grid=(blocks, 1, 1), block=(self.threads, 1, 1), stream=stream
        )


def benchmark():
    return cutlass_torch.default_stream(), torch.randn(3), np.zeros(3)
"""
CLASS_OP = """
[[kernel.k.op]]
schema = "scale(Tensor x) -> Tensor out"
function = "Scale"
shapes = { x = ["..."], out = "x" }
dtypes = ["float16"]
contiguous = true
constants = { wide = { dtype = "float32" }, tile = [16, 4] }
"""


def test_a_class_beside_torch(bench: CuteProject, tmp_path: Path) -> None:
    """Its constructor's parameters are constants; Torch is imported where it is not."""
    made = bench.compiled(CLASS_OP, CLASS, "sm_80", "sm_90a")
    assert {one.unit.target.arch for one in made} == {"sm_80", "sm_90a"}
    assert {archs_of(one.code, tmp_path)[0] for one in made} == {"8.0", "9.0a"}
    passed = {tuple(p.name for p in one.image.parameters) for one in made}
    assert passed == {("x", "out")}
    threads = CLASS_OP.replace("tile = [16, 4]", "tile = [16, 4], threads = 64")
    (one, *_) = bench.compiled(threads, CLASS, "sm_80")
    assert one.code != made[0].code


def test_an_error_names_the_authors_line(bench: CuteProject) -> None:
    broken = SOURCE.replace("value += 1.0", "value += undefined_name")
    line = broken.splitlines().index("            value += undefined_name") + 1
    with pytest.raises(BuildError, match="undefined_name") as raised:
        bench.compiled(OP, broken, "sm_80")
    assert f"add.py:{line}: " in str(raised.value)


def test_code_for_another_arch_is_refused_in_words(bench: CuteProject) -> None:
    line = "    mma = hopper.make_trivial_tiled_mma("
    own = STRIDED.replace("    kernel(x", f"{line}{WGMMA})\n    kernel(x").replace(
        "from cutlass import cute\n", HOPPER
    )
    with pytest.raises(BuildError, match="expects arch to be sm_90a, but got sm_80") as raised:
        bench.compiled(STRIDED_OP, own, "sm_80")
    assert f"add.py:{own.splitlines().index(f'{line}{WGMMA})') + 1}: " in str(raised.value)


def test_an_older_release_beside(cache: Path, tmp_path: Path) -> None:
    found = {}
    for version in ("4.5.3", VERSION):
        with shop(cache, tmp_path / version, version=version) as opened:
            made = opened.compiled(OP, SOURCE, "sm_90a", flavour="cuda13")
            found[version] = {one.image.compiler["nvidia-cutlass-dsl"] for one in made}
            assert all(one.image.convention == "tvm-ffi" for one in made)
    assert found == {version: {version} for version in found}


def test_a_header_and_an_object_for_c(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "add.py").write_text(SOURCE)
    arguments = ("x=float16[N]@16", "extra=float16[N]", "out=float16[N]", "factor=f32",
                 "shape=(i32, i32)", "flag=bool", "wide=float32", "threads=128")  # fmt: skip
    order = CuteExport(
        "add", ("add.py",), arguments, (ImageTarget.parse("sm_90a"), ImageTarget.parse("sm_80")),
        (f"nvidia-cutlass-dsl=={VERSION}",), "cuda13", "sum",
    )  # fmt: skip
    services = Services(LocalRunner(), Ui(), cache)
    files, archive = export_cute(order, tmp_path, "sum", services)
    assert archive.is_file()
    written = dict(files.items())
    assert sorted(written) == [
        f"sum.{arch}.{suffix}" for arch in ("sm_80", "sm_90a") for suffix in ("h", "json", "o")
    ]
    facts = {arch: json.loads(written[f"sum.{arch}.json"]) for arch in ("sm_80", "sm_90a")}
    assert len({one["prefix"] for one in facts.values()}) == 2
    for arch, one in facts.items():
        assert archs_of(written[f"sum.{arch}.o"], tmp_path) == [
            "8.0" if arch == "sm_80" else "9.0a"
        ]
        assert newer_instructions(written[f"sum.{arch}.o"], tmp_path) == []
        header = written[f"sum.{arch}.h"].decode()
        assert one["prefix"].startswith(f"sum_{arch}_")
        assert f"int32_t {one['call']}({one['prefix']}_Kernel_Module_t *module" in header
        assert (
            "float factor, int32_t shape_0, int32_t shape_1, uint8_t flag, cudaStream_t" in header
        )
        assert [item["name"] for item in one["arguments"]] == [
            "x", "extra", "out", "factor", "shape.0", "shape.1", "flag"
        ]  # fmt: skip
        assert (one["arguments"][0]["align"], one["arguments"][1]["align"]) == (16, 2)

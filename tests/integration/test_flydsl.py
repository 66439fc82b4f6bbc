"""FlyDSL compiles without a GPU: objects for gfx942, called with a HIP that writes launches down.

Fetches 90 MB. Nothing here runs on an AMD GPU.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from kbuild.ops.image import UnitImage
from kbuild.system.errors import BuildError
from kbuild.toolchains.rocm import RocmInstallation
from tests.support.command_project import CommandProject, run, write_files
from tests.support.dsl.compiled import DslProject, dsl_compiler
from tests.support.stores import MACHINE_CACHE, cache_with_store, dsl_store

pytestmark = [pytest.mark.network, pytest.mark.compile]
VARIANT = "torch-stable-abi211-rocm72-x86_64-linux"
FAKE = Path(__file__).resolve().parents[1] / "support" / "fakes" / "hip_modules.c"
SOURCE = """\
import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_kernel(x: fx.Tensor, y: fx.Tensor, out: fx.Tensor, block: fx.Constexpr[int]):
    at = (None, fx.block_idx.x)
    x, y, out = (fx.slice(fx.logical_divide(t, fx.make_layout(block, 1)), at) for t in (x, y, out))
    one = fx.make_layout(1, 1)
    x, y, out = (fx.logical_divide(t, one) for t in (x, y, out))
    copy = fx.make_copy_atom(fx.UniversalCopy32b(), fx.Float32)
    kind = fx.MemRefType.get(fx.T.f32, fx.LayoutType.get(1, 1), fx.AddressSpace.Register)
    a, b, c = (fx.memref_alloca(kind, one) for _ in range(3))
    here = (None, fx.thread_idx.x)
    fx.copy_atom_call(copy, fx.slice(x, here), a)
    fx.copy_atom_call(copy, fx.slice(y, here), b)
    fx.memref_store_vec(fx.arith.addf(fx.memref_load_vec(a), fx.memref_load_vec(b)), c)
    fx.copy_atom_call(copy, c, fx.slice(out, here))


@flyc.jit
def add(x: fx.Tensor, y: fx.Tensor, out: fx.Tensor, n: fx.Int32, block: fx.Constexpr[int],
        stream: fx.Stream = fx.Stream(None)):
    add_kernel(x, y, out, block).launch(
        grid=((n + block - 1) // block, 1, 1), block=[block, 1, 1], stream=stream
    )


@flyc.kernel
def tile_kernel(x: fx.Tensor, out: fx.Tensor):
    tile = fx.make_tile(fx.make_layout(8, 1), fx.make_layout(24, 1))
    x, out = fx.rocdl.make_buffer_tensor(x), fx.rocdl.make_buffer_tensor(out)
    at = (None, fx.block_idx.x)
    x, out = fx.slice(fx.zipped_divide(x, tile), at), fx.slice(fx.zipped_divide(out, tile), at)
    copy = fx.make_copy_atom(fx.rocdl.BufferCopy128b(), fx.Float32)
    layout = fx.raked_product(fx.make_layout((4, 1), (1, 1)), fx.make_layout((1, 8), (1, 1)))
    mine = fx.make_tiled_copy(copy, layout, fx.make_tile(4, 8)).get_slice(fx.thread_idx.x)
    source, target = mine.partition_S(x), mine.partition_D(out)
    kept = fx.make_fragment_like(source)
    fx.copy(copy, source, kept)
    fx.copy(copy, kept, target)


@flyc.jit
def tile_copy(x: fx.Tensor, out: fx.Tensor):
    tile_kernel(x, out).launch(grid=(15, 1, 1), block=(4, 1, 1))


@flyc.jit
def wrong(x: fx.Tensor, out: fx.Tensor):
    unknown(x, out)


@flyc.jit
def counted(x: fx.Tensor, out: fx.Tensor, factor: fx.Int32):
    add_kernel(x, x, out, 64).launch(grid=(factor, 1, 1), block=[64, 1, 1])
"""
ADD = """
[[kernel.k.op]]
schema = "add(Tensor x, Tensor y) -> Tensor out"
shapes = { x = ["n"], y = ["n"], out = ["n"] }
dtypes = ["float32"]
configs = [{ block = 64 }]
contiguous = ["y"]
ones = ["x.stride.0"]
"""
TILE = """
[[kernel.k.op]]
schema = "tile_copy(Tensor x) -> Tensor out"
shapes = { x = ["m", "n"], out = "x" }
dtypes = ["float32"]
ones = ["x.stride.1"]
divisible = ["n", "x.stride.0"]
"""
UNARY = """
[[kernel.k.op]]
schema = "{name}(Tensor x{more}) -> Tensor out"
shapes = {{ x = ["n"], out = "x" }}
dtypes = ["float32"]
contiguous = true
"""
BUILD = """\
[general]
name = "flyadd"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["rocm"]

[torch]
stable-abi = "2.11"
src = []

[kernel.k]
backend = ["rocm"]
language = "flydsl"
toolchain = "flydsl==0.4.2"
rocm-archs = ["gfx942"]
src = ["flyadd/kernels.py"]
"""


@pytest.fixture(scope="module", autouse=True)
def _need_linker(rocm: RocmInstallation) -> None:
    version = run((str(rocm.path / "llvm/bin/ld.lld"), "--version"), cwd=rocm.path).stdout
    found = re.search(r"LLD (\d+)", version)
    if found is None or int(found[1]) < 19:
        pytest.skip("needs an `ld.lld` of LLVM 19 or later: `apt install lld-19`")


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, rocm: RocmInstallation
) -> Iterator[DslProject]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(rocm.path))
        with dsl_compiler(MACHINE_CACHE, keeps=False) as compiler:
            folder = tmp_path_factory.mktemp("flydsl")
            yield DslProject(compiler, folder, "flydsl", ("flydsl==0.4.2",))


def compiled(project: DslProject, text: str, arch: str = "gfx942") -> tuple[UnitImage, ...]:
    return project.compile(text, {"k.py": SOURCE}, arch, flavour="rocm")


def test_calls_pass_what_the_object_takes(project: DslProject, tmp_path: Path) -> None:
    one = next(image for image in compiled(project, ADD) if not image.unit.aligned)
    names = [(p.name, p.type) for p in one.image.parameters]
    assert names == [
        ("x", "*fp32"), ("x.shape.0", "i32"), ("x.stride.0", "i64"), ("y", "*fp32"),
        ("y.shape.0", "i32"), ("out", "*fp32"), ("out.shape.0", "i32"), ("n", "i32"),
    ]  # fmt: skip
    (tmp_path / "k.o").write_bytes(one.code)
    library = tmp_path / "k.so"
    command = ("gcc", "-shared", "-fPIC", "-o", str(library), str(FAKE), str(tmp_path / "k.o"))
    subprocess.run((*command, "-ldl"), check=True)  # noqa: TID251
    assert [found.arch for found in read_device_code(library).images] == ["gfx942"]
    linked = ctypes.CDLL(str(library))
    call, error = linked[one.image.entry], linked[f"{one.image.entry}_error"]
    linked.fake_written.restype = error.restype = ctypes.c_char_p

    def launched(n: int, *, fails: int = 0) -> tuple[int, str]:
        linked.fake_begin(fails)
        p = [ctypes.c_void_p(at << 12) for at in (1, 2, 3)]
        i, stride = ctypes.c_int32(n), ctypes.c_int64(2)
        status = call(p[0], i, stride, p[1], i, p[2], i, i, ctypes.c_void_p(0x1234))
        return status, linked.fake_written().decode()

    assert linked[f"{one.image.entry}_load"]() == 0
    grid = "grid=5,1,1 block=64 stream=0x1234 p0=1000"
    status, written = launched(300)
    assert (status, written.startswith(grid)) == (0, True), written
    assert launched(0) == (0, "")
    assert launched(300, fails=1)[0] != 0
    assert error() == b"what HIP says"


def test_a_tile_kernel(project: DslProject) -> None:
    aligned, general = sorted(compiled(project, TILE), key=lambda one: not one.unit.aligned)
    assert {"x", "out", "x.stride.0"} <= aligned.image.divisible
    assert aligned.image.ones == {"x.stride.1"}
    assert general.image.divisible == general.image.ones == frozenset()
    again = compiled(project, TILE)
    assert {one.code for one in again} == {aligned.code, general.code}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (UNARY.format(name="wrong", more=""), "k.py:51: NameError: name 'unknown'"),
        (UNARY.format(name="counted", more=", float factor"), "declared as Int32"),
    ],
)
def test_errors_have_the_authors_line(project: DslProject, text: str, words: str) -> None:
    with pytest.raises(BuildError) as caught:
        compiled(project, text)
    assert words in str(caught.value)


def test_an_old_linker_is_named(project: DslProject, rocm: RocmInstallation) -> None:
    old = next(Path("/usr/lib").glob("llvm-1[0-8]/bin/ld.lld"), None)
    linker = rocm.path / "llvm/bin/ld.lld"
    if old is None or not linker.is_symlink():
        pytest.skip("needs a linker before LLVM 19")
    newest = linker.readlink()
    linker.unlink()
    linker.symlink_to(old)
    try:
        with pytest.raises(BuildError, match="lld invocation failed") as caught:
            compiled(project, ADD, "gfx950")
        assert "LLVM 19" in caught.value.hint
    finally:
        linker.unlink()
        linker.symlink_to(newest)


@pytest.mark.torch
def test_a_variant(
    tmp_path: Path, rocm: RocmInstallation, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("torch")
    monkeypatch.setenv("ROCM_PATH", str(rocm.path))
    init = "from ._ops import ops\n\nadd = ops.add\n__all__ = ['add']\n"
    files = {
        "build.toml": BUILD + ADD,
        "torch-ext/flyadd/__init__.py": init,
        "flyadd/kernels.py": SOURCE,
    }
    write_files(tmp_path / "project", files)
    store = dsl_store("flydsl-0.4.2", "flydsl", tmp_path_factory)
    made = CommandProject(tmp_path / "project", cache_with_store(tmp_path / "cache", store))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "add")):
        made.git(*arguments)
    made.built("--variant", VARIANT)
    folder = made.root / "build" / VARIANT
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "rocm", "archs": ["gfx942"]}
    (extension,) = folder.glob("*.abi3.so")
    assert {(image.arch, image.kind) for image in read_device_code(extension).images} == {
        ("gfx942", "machine")
    }
    done = made.kbuild("check-builds", "--strict", "--skip", "manylinux", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    found = [finding for built in target["outputs"] for finding in built["findings"]]
    assert [finding for finding in found if finding["severity"] != "info"] == []

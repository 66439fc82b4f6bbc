"""cuTile compiles without a GPU: cubins for several archs, C files, errors. Fetches 170 MB."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kbuild.checks.readers.device_code import read_device_code
from kbuild.system.files import FileSet
from tests.support.command_project import ROOT, CommandProject, write_files
from tests.support.dsl.projects import loaded
from tests.support.exported_functions import compiled, run
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [pytest.mark.network, pytest.mark.compile]
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
KERNELS = """\
import cuda.tile as ct


def doubled(tile):
    return tile @ unknown


@ct.kernel
def scale(x, out, factor, n: ct.ScalarInt64, B: ct.Constant[int]):
    at = (ct.bid(0), ct.bid(1))
    tile = ct.load(x, index=at, shape=(B, B))
    ct.store(out, index=at, tile=tile * factor + ct.astype(n, x.dtype))


@ct.kernel
def wrong(x, out):
    ct.store(out, index=(0,), tile=doubled(ct.load(x, index=(0,), shape=(8,))))


@ct.kernel
def odd(x, out, B: ct.Constant[int]):
    ct.store(out, index=(0,), tile=ct.load(x, index=(0,), shape=(B,)))
"""
ARRAY = "float32[M, N; S%16, 1]@16"
SCALE = (
    *("--function", "scale", "--arg", f"x={ARRAY}", "--arg", "out=float32[M, N]"),
    *("--arg", "factor=f32", "--arg", "n=i32", "--arg", "B=16"),
    *("--grid", "cdiv(x_shape_0, B), cdiv(x_shape_1, B)"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where cuTile is installed, once for all tests."""
    return dsl_store("cutile-1.7.0", "cuda-tile", tmp_path_factory)


@pytest.fixture(scope="module")
def bench(store: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    """The example, built for Hopper."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("gemm")
    left = shutil.ignore_patterns("build", ".kbuild", "__pycache__", "flake.nix")
    shutil.copytree(ROOT / "examples" / "gemm-cutile", folder / "project", ignore=left)
    made = CommandProject(folder / "project", cache_with_store(folder / "cache", store))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "gemm")):
        made.git(*arguments)
    made.built("--variant", VARIANT, "--arch", "9.0")
    return made


@pytest.fixture
def source(store: Path, tmp_path: Path) -> CommandProject:
    """A folder with `KERNELS`."""
    write_files(tmp_path / "project", {"kernels.py": KERNELS})
    return CommandProject(tmp_path / "project", cache_with_store(tmp_path / "cache", store))


@pytest.mark.torch
def test_what_is_in_the_variant(bench: CommandProject) -> None:
    folder = bench.root / "build" / VARIANT
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0a"]}
    versions = metadata["provenance"]["kernel-builder"]["toolchain"]["versions"]
    assert (versions["cuda-tile"], versions["tileiras"]) == ("1.7.0", "13.4.92")
    (extension,) = folder.glob("*.abi3.so")
    images = read_device_code(extension).images
    assert {(image.arch, image.kind) for image in images} == {("9.0a", "machine")}
    # Three candidates for any call, aligned and general, and two of the tuned table; two dtypes.
    assert len(images) == (3 * 2 + 2) * 2
    with extension.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        assert not [tag.needed for tag in tags if "cu" in tag.needed]
    data = extension.read_bytes()
    for word in (str(bench.root), str(bench.cache), "site-packages", "gemm_cutile/gemm.py"):
        assert word.encode() not in data, word
    done = bench.kbuild("check-builds", "--strict", "--skip", "manylinux", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    found = [finding for built in target["outputs"] for finding in built["findings"]]
    assert [finding for finding in found if finding["severity"] != "info"] == []


@pytest.mark.torch
def test_it_loads_without_the_dsl(bench: CommandProject) -> None:
    code = """
assert "cuda.tile" not in sys.modules
sys.modules["cuda"] = None
a = torch.empty(3, 5, device="meta", dtype=torch.bfloat16)
print(tuple(kernel.gemm(a, a.t()).shape))
"""
    assert bench.python(loaded(str(bench.root / "build" / VARIANT), code)) == "(3, 3)\n"


def test_c_files_for_two_archs(source: CommandProject, tmp_path: Path) -> None:
    source.kbuild("aot", "cutile", "kernels.py", *SCALE, "-t", "sm_80", "-t", "sm_90", "-o", "s")
    assert sorted(path.name.split(".")[1] for path in source.root.glob("*.h")) == [
        "sm_80",
        "sm_90a",
    ]
    files = list(source.root.glob("s.sm_80.*.[ch]"))
    header = next(path for path in files if path.suffix == ".h").read_text()
    name = re.search(r"^/\* (\w+):", header)
    assert name is not None
    exported = FileSet({path.name: path.read_bytes() for path in files})
    script = (
        "fake.fake_capability(8, 0)\n"
        "sizes(8, 4, 4, 4, 4, 8, 4, 4, 4, 4, 4, 8)\n"
        "numbers = lambda *values: [c_int32(value) for value in values]\n"
        f"call = lambda stride: lib.{name[1]}(None, c_uint64(16), *numbers(40, 24, stride, 1),"
        " c_uint64(8), *numbers(40, 24, 24, 1), c_float(0.5), c_int64(7))\n"
        "say(call(48), call(40), report())"
    )
    good, bad, seen = run(compiled(tmp_path, exported), script)
    assert (good, bad) == (0, 1)  # 40 is not divisible by 16
    assert (seen["grid"], seen["block"]) == ([3, 2, 1], 1)
    forms = [("<Q", 16), *(("<i", n) for n in (40, 24, 48, 1))]
    forms += [("<Q", 8), *(("<i", n) for n in (40, 24, 24, 1)), ("<f", 0.5), ("<q", 7)]
    assert seen["values"] == [struct.pack(*form).hex() for form in forms]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("wrong", "--arg", "x=float32[N]", "--arg", "out=float32[N]"),
         ("kernels.py:5: Undefined variable unknown used",)),
        (("odd", "--arg", "x=float32[N]", "--arg", "out=float32[N]", "--arg", "B=48"),
         ("kernels.py:22: ", "power of two")),
        (("odd", "--arg", "x=float32[N]", "--arg", "out=float32[N]", "--arg", "B=float32"),
         ("cuTile takes no dtype as a constant",)),
        (("missing",), ("`kernels.py` has no kernel function `missing`",)),
    ],
    ids=["helper", "kernel", "dtype", "name"],
)  # fmt: skip
def test_errors_name_the_line(
    source: CommandProject, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    command = ("aot", "cutile", "kernels.py", "-t", "sm_90", "--grid", "1", "--function")
    done = source.run(*command, *arguments)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr

"""NineToothed's kernels from `build`'s inputs to a loaded op, without a GPU. Fetches 286 MB."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from tests.support.command_project import ROOT, CommandProject, write_files
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for it"),
]
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
BUILD = ("--variant", VARIANT)
SECTION = """\
[general]
name = "scale"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.scale]
backend = "cuda"
language = "ninetoothed"
toolchain = ["ninetoothed==0.26.0", "triton==3.9.0"]
src = ["dsl/scale.py", "dsl/parts.py"]
cuda-capabilities = ["8.0"]

[[kernel.scale.op]]
schema = "scale(Tensor x, float by) -> Tensor out"
shapes = { x = ["M", "N"], out = "x" }
dtypes = ["float32"]
"""
KERNEL = """\
import functools

import ninetoothed
from ninetoothed import Tensor

from dsl.parts import application, arrangement


def premake(dtype, rows, columns):
    tensors = (Tensor(2, dtype=dtype), Tensor(0, dtype=ninetoothed.float32), Tensor(2, dtype=dtype))
    return functools.partial(arrangement, rows=rows, columns=columns), application, tensors


scale = ninetoothed.build(
    premake,
    (((ninetoothed.float32, 4), {"columns": n}, {"num_warps": 4}) for n in (64, 100)),
    meta_parameters=("columns",),
    kernel_name="scale",
    output_dir="never",
)
"""
PARTS = """\
import ninetoothed.language as ntl


def arrangement(x, by, out, rows, columns):
    return x.tile((rows, columns)), by, out.tile((rows, columns))


def application(x, by, out):
    out = bounded(x * by)


def bounded(value):
    return ntl.maximum(value, -100.0)
"""
CLIENT = """\
import sys
for name in ("ninetoothed", "triton"):
    sys.modules[name] = None
import torch
torch.version.cuda = "13.0"  # the client then takes the variant that is there
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({build!r}), backend="cuda")
x = torch.empty(7, device="meta", dtype=torch.float16)
assert kernel.add(x, x).shape == (7,)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where NineToothed is installed, once for all tests."""
    return dsl_store("ninetoothed-0.26.0", "ninetoothed", tmp_path_factory)


@pytest.fixture(scope="module")
def place(store: Path, tmp_path_factory: pytest.TempPathFactory):
    """Makes a bench with a cache of its own, but for the store."""

    def make(name: str) -> CommandProject:
        folder = tmp_path_factory.mktemp(name)
        return CommandProject(folder / "project", cache_with_store(folder / "cache", store))

    return make


def committed(bench: CommandProject) -> CommandProject:
    bench.commit()
    return bench


def write(bench: CommandProject, **files: str) -> CommandProject:
    content = {
        "build.toml": SECTION,
        "dsl/scale.py": KERNEL,
        "dsl/parts.py": PARTS,
        "torch-ext/scale/__init__.py": "from ._ops import ops\n\nscale = ops.scale\n",
        ".gitignore": "build/\n.kbuild/\n",
    }
    write_files(bench.root, {**content, **files})
    return committed(bench)


def images(bench: CommandProject) -> dict[str, bytes]:
    folder = bench.cache / "images"
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("*/*")}


@pytest.fixture(scope="module")
def scale(place) -> CommandProject:
    bench = write(place("scale"))
    assert bench.built(*BUILD)["status"] == "built"
    return bench


@pytest.mark.quick
def test_the_example(place) -> None:
    bench = place("add")
    ignore = shutil.ignore_patterns("build", ".kbuild", "__pycache__")
    shutil.copytree(ROOT / "examples" / "add-ninetoothed", bench.root, ignore=ignore)
    build = (*BUILD, "--arch", "9.0")
    assert committed(bench).built(*build)["status"] == "built"
    folder = bench.root / "build" / VARIANT
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["9.0a"]}
    versions = metadata["provenance"]["kernel-builder"]["toolchain"]["versions"]
    assert (versions["ninetoothed"], versions["triton"]) == ("0.26.0", "3.9.0")
    (extension,) = folder.glob("*.abi3.so")
    found = {(image.arch, image.kind) for image in read_device_code(extension).images}
    assert found == {("9.0a", "machine")}
    assert str(bench.root).encode() not in extension.read_bytes()
    bench.python(CLIENT.format(build=str(folder.parent)))
    assert bench.built(*build)["status"] == "up-to-date"


def test_a_call_of_build_is_packaged(scale: CommandProject) -> None:
    """It makes no folder, compiles what the inputs say, and nothing calls a GPU."""
    assert not (scale.root / "never").exists()
    code = f"""
import sys, torch
sys.path.insert(0, {str(scale.root / "build" / VARIANT)!r} + "/..")
kernel = __import__("importlib").import_module({VARIANT!r})
out = kernel.scale(torch.empty(3, 5, device="meta"), 2.0)
assert out.shape == (3, 5) and out.dtype == torch.float32
"""
    scale.python(code)


def test_the_same_bytes_whoever_builds(scale: CommandProject, place) -> None:
    other = write(place("other"))
    other.kbuild("build", *BUILD, env={"PYTHONHASHSEED": "7", "HOME": str(other.cache)})
    assert images(other)
    assert images(other) == images(scale)


def test_everything_that_the_kernel_sees_counts(scale: CommandProject, tmp_path: Path) -> None:
    text = PARTS.replace("-100.0", "-200.0")  # in a function that the application calls
    bench = write(CommandProject(tmp_path / "project", scale.cache), **{"dsl/parts.py": text})
    (row,) = bench.built(*BUILD)["images"]
    assert (row["images"], row["cached"]) == (6, 0)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "dsl/parts.py",
            "x * by",
            "x * FACTOR",
            "dsl/parts.py:8: config 1 of `scale`: NineToothed's generator does not pass `FACTOR`",
        ),
        (
            "dsl/scale.py",
            "rows=rows",
            "rows=ninetoothed.block_size()",
            "dsl/parts.py:8: config 1 of `scale`: `BLOCK_SIZE_0` has no value",
        ),
        ("dsl/parts.py", "x.tile", "x.tiles", "dsl/parts.py:5: AttributeError"),
        ("dsl/parts.py", "ntl.maximum", "ntl.nothing", "dsl/parts.py:8: "),
        ("dsl/scale.py", '"num_warps"', '"num_ctas"', "dsl/scale.py:14: config 1 of `scale` sets"),
        ("build.toml", '"dsl/scale.py", ', "", "there is no kernel `scale` in `dsl/parts.py`"),
    ],
    ids=["global", "meta", "arrangement", "triton", "option", "source"],
)
def test_mistakes_are_told_in_place(scale: CommandProject, tmp_path, file, old, new, said) -> None:
    bench = write(CommandProject(tmp_path / "project", scale.cache))
    text = (bench.root / file).read_text()
    assert old in text
    (bench.root / file).write_text(text.replace(old, new))
    done = bench.run("build", *BUILD)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr

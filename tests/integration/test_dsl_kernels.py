"""Kernels in Triton from `build.toml` to a loaded op, without a GPU. Fetches 286 MB."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kbuild.checks.readers.device_code import read_device_code
from tests.support.command_project import CommandProject
from tests.support.dsl.projects import CUDA_ARCHS, KERNEL, VARIANT, loaded, write_adder
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]
BUILD = ("--variant", VARIANT)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Triton is installed, once for all tests."""
    return dsl_store("triton-3.9.0", "triton", tmp_path_factory)


@pytest.fixture(scope="module")
def place(store: Path, tmp_path_factory: pytest.TempPathFactory):
    """Makes a bench with a cache of its own, but for the store."""

    def make(name: str) -> CommandProject:
        folder = tmp_path_factory.mktemp(name)
        (folder / "project").mkdir()
        return CommandProject(folder / "project", cache_with_store(folder / "cache", store))

    return make


@pytest.fixture(scope="module")
def adder(place) -> CommandProject:
    bench = write_adder(place("adder"))
    bench.built(*BUILD)
    return bench


def extension(bench: CommandProject, variant: str = VARIANT) -> Path:
    (found,) = (bench.root / "build" / variant).glob("*.abi3.so")
    return found


@pytest.mark.quick
def test_what_is_in_the_variant(adder: CommandProject) -> None:
    folder = adder.root / "build" / VARIANT
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0+PTX"]}
    versions = metadata["provenance"]["kernel-builder"]["toolchain"]["versions"]
    assert versions["triton"] == "3.9.0"
    assert re.match(r"1[23]\.\d+\.\d+", versions["ptxas"])
    images = read_device_code(extension(adder)).images
    assert {(image.arch, image.kind) for image in images} == {("8.0", "machine"), ("8.0", "ptx")}
    with extension(adder).open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
    assert not any("cuda" in name or "cudart" in name for name in needed), needed


def test_no_paths_and_no_dsl_inside(adder: CommandProject) -> None:
    data = extension(adder).read_bytes()
    for word in (str(adder.root), str(adder.cache), "site-packages", str(Path.home())):
        assert word.encode() not in data, word


@pytest.mark.quick
def test_it_loads_without_triton(adder: CommandProject) -> None:
    code = """
x = torch.empty(4, 5, device="meta", dtype=torch.float16)
assert kernel.add(x, x).shape == (4, 5)
compiled = torch.compile(lambda a: kernel.add(a, a) + 1, fullgraph=True, backend="aot_eager")
assert compiled(x).dtype == torch.float16
again = load("adder_5678")
assert again.add(x, x).shape == (4, 5)
try:
    kernel.add(x, torch.empty(3, device="meta", dtype=torch.float16))
except RuntimeError as error:
    print(error)
y = torch.empty(3, device="meta", requires_grad=True)
kernel.add(y, y).sum().backward()
assert y.grad.shape == (3,)
assert "triton" not in sys.modules
try:
    kernel.add(torch.zeros(3), torch.zeros(3))
except NotImplementedError as error:
    print("CPU" in str(error))
"""
    said = adder.python(loaded(str(adder.root / "build" / VARIANT), code))
    assert "add: y must have the shape of x" in said
    assert "True" in said


@pytest.mark.quick
def test_a_second_build_does_nothing(adder: CommandProject) -> None:
    assert adder.built(*BUILD)["status"] == "up-to-date"
    images = adder.cache / "images"
    # Not the times: an entry that is used after a minute gets a new one.
    before = {path: path.stat().st_ino for path in images.glob("*/*")}
    shutil.rmtree(adder.root / ".kbuild")
    shutil.rmtree(adder.root / "build")
    built = adder.built(*BUILD)
    assert built["status"] == "built"
    assert all(row["cached"] == row["images"] for row in built["images"])
    assert {path: path.stat().st_ino for path in images.glob("*/*")} == before


@pytest.mark.quick
def test_mistakes_are_told_with_the_authors_lines(place) -> None:
    bench = write_adder(place("mistakes"))
    source = bench.root / "dsl/add.py"
    source.write_text(KERNEL.replace("x + y", "x + z"))
    said = bench.kbuild("build", *BUILD, expect=5).stderr
    assert "kernel.add: dsl/add.py:10: NameError('z is not defined')" in said
    assert "add sm_80 float16" in said
    source.write_text(KERNEL.replace("n, BLOCK", "n, m, BLOCK"))
    done = bench.kbuild("build", *BUILD, expect=3)
    said = done.stdout + done.stderr
    line = 1 + (bench.root / "build.toml").read_text().splitlines().index("[[kernel.add.op]]")
    assert f"build.toml:{line}: kernel.add.op[0].args: `add_kernel` has no value for" in said
    assert said.count("has no value for") == 1


def test_other_variants(place) -> None:
    """Full ABI, an older CUDA, ROCm: no toolkit is needed for any of them."""
    bench = write_adder(
        place("others"),
        backends='"cuda", "rocm"',
        torch="",
        archs=f'{CUDA_ARCHS}\nrocm-archs = ["gfx942"]',
    )
    names = ("torch213-cxx11-cu126-x86_64-linux", "torch213-cxx11-rocm72-x86_64-linux")
    options = [part for name in names for part in ("--variant", name)]
    environment = {"KBUILD_TOOLCHAIN": "auto", "PATH": "/usr/bin:/bin"}
    done = bench.kbuild("build", "--json", *options, env=environment)
    found = {one["variant"]: one for one in json.loads(done.stdout)["variants"]}
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, "built")
    images = read_device_code(extension(bench, names[1])).images
    assert {(image.backend, image.arch) for image in images} == {("rocm", "gfx942")}


def test_the_fallback_runs_the_dsl(place, store: Path) -> None:
    bench = write_adder(place("fallback"), more='fallback = "jit"')
    bench.built(*BUILD)
    code = """
x, y = torch.randn(3, 50), torch.randn(3, 50)
assert torch.equal(kernel.ops._add_jit(x, y), x + y)
assert torch.equal(kernel.ops._add_jit(x[0], y[0]), x[0] + y[0])
assert "triton" in sys.modules
"""
    program = loaded(str(bench.root / "build" / VARIANT), code)
    (environment,) = (
        folder
        for folder in store.glob("triton-3.9.0-*")
        if json.loads((folder / "entry.json").read_text())["recipe"]["inputs"]["pins"]
        == ["triton==3.9.0"]
    )
    paths = {"PYTHONPATH": str(environment / "root"), "TRITON_INTERPRET": "1"}
    bench.python(program, paths)
    without = "assert not hasattr(kernel.ops, '_add_jit') and 'triton' not in sys.modules"
    bench.python(loaded(str(bench.root / "build" / VARIANT), without))

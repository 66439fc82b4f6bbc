"""Variants for aarch64, built on x86_64: read, and every symbol resolved by the loader of aarch64.

The loader runs in qemu-user and has the C and C++ libraries of the cross compiler. Torch's are link
stubs there, so what it does not find must be what Torch or Python exports.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.policies import is_exported_by_torch
from kbuild.checks.readers.elf import read_elf
from kbuild.project.variant import System, Variant
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.build_tools import cross_package, find_cross_cxx
from tests.support.command_project import CommandProject, run
from tests.support.stores import store_with

ARM = System("aarch64", "linux")
CXX = find_cross_cxx(ARM)
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
UNDEFINED = re.compile(r"undefined symbol: (\S+)")
OF_PYTHON = re.compile(r"_?Py\w+")
WHEELS = {"KBUILD_TOOLCHAIN": "wheels"}

pytestmark = [
    pytest.mark.compile,
    pytest.mark.network,
    pytest.mark.skipif(
        platform.machine() != "x86_64" or CXX is None,
        reason=f"needs x86_64 and a cross compiler: apt install {cross_package(ARM)}",
    ),
]
Example = Callable[..., CommandProject]


def build(example: Example, name: str, variant: str, *options: str) -> Path:
    """The variant, which passes every check but `load`, which is not run."""
    project = example(name, kept=True)
    done = project.run("build", "--json", "--variant", variant, *options, env=WHEELS)
    if "cannot be queried" in done.stderr or "not on this machine" in done.stderr:
        pytest.skip("needs the package index")
    assert done.returncode == 0, done.stderr
    folder = project.root / "build" / variant
    assert '"not-run": [\n        "load"' in (folder / "metadata.json").read_text()
    card = project.root / "build" / "CARD.md"
    assert "Built on another processor, and not run" in card.read_text()
    checked = project.run("check", "-v", str(folder), env=WHEELS)
    assert checked.returncode == 0, checked.stdout
    assert "not run: it is for aarch64-linux" in checked.stdout
    return folder


def library_of(folder: Path) -> Path:
    (library,) = folder.glob("*.so")
    assert read_elf(library).cpu == "aarch64"
    return library


def unresolved(library: Path, cache: Path) -> set[str]:
    """The symbols that the loader does not find; it fails for versions that are not there."""
    if QEMU is None or not LIBRARIES.is_dir():
        pytest.skip("needs qemu-user: apt install qemu-user-static")
    needed = list(cache.glob("store/torch-*/root/link/libtorch.so"))
    stubs = next(path.parent for path in needed if read_elf(path).cpu == "aarch64")
    variables = {
        "LD_TRACE_LOADED_OBJECTS": "1",
        "LD_WARN": "yes",
        "LD_BIND_NOW": "yes",
        "LD_LIBRARY_PATH": f"{LIBRARIES}:{stubs}",
    }
    given = (part for name, text in variables.items() for part in ("-E", f"{name}={text}"))
    loader = str(LIBRARIES / "ld-linux-aarch64.so.1")
    done = run((QEMU, *given, loader, str(library)), cwd=cache)
    text = done.stdout + done.stderr
    assert "not found" not in text
    return set(UNDEFINED.findall(text))


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("relu", "torch213-cxx11-cpu-aarch64-linux"),
        pytest.param(
            *("relu-stable-abi", "torch-stable-abi211-cpu-aarch64-linux"), marks=pytest.mark.quick
        ),
    ],
)
def test_extensions_resolve(example: Example, name: str, variant: str) -> None:
    folder = build(example, name, variant)
    missing = unresolved(library_of(folder), folder.parents[2] / "cache")
    known = Variant.parse(variant)
    of_torch = {symbol for symbol in missing if is_exported_by_torch(symbol, known) is True}
    assert "PyModule_Create2" in missing
    assert of_torch
    assert [s for s in missing - of_torch if not OF_PYTHON.fullmatch(s)] == []


def test_images_are_shared_with_x86(example: Example) -> None:
    """The launcher is compiled for aarch64; its images are the bytes that x86_64's are."""
    variant = "torch-stable-abi211-cu130-{}-linux"
    options = ("--arch", "9.0")
    arm = library_of(build(example, "rmsnorm-triton", variant.format("aarch64"), *options))
    project = CommandProject(arm.parents[2], arm.parents[3] / "cache")
    project.kbuild("build", "--variant", variant.format("x86_64"), *options, env=WHEELS)
    (x86,) = (project.root / "build" / variant.format("x86_64")).glob("*.so")
    assert image_digest(arm) == image_digest(x86)


def image_digest(library: Path) -> str:
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        return hashlib.sha256(
            ELFFile(file).get_section_by_name(".kbuild_images").data()
        ).hexdigest()


def test_char_is_unsigned_in_device_code_for_aarch64(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """So `.cu` objects are compiled for each processor, and never shared."""
    nvcc = next(store_with("cuda-13.0", tmp_path_factory).glob("cuda-13.0*/root/bin/nvcc"), None)
    if nvcc is None:
        pytest.skip("needs nvcc from wheels")
    source = tmp_path / "sign.cu"
    source.write_text(
        'extern "C" __global__ void sign(const char* c, int* out) { out[0] = c[0] < 0; }\n'
    )
    texts = []
    for compiler in (shutil.which("g++"), str(CXX)):
        target = tmp_path / f"{len(texts)}.ptx"
        command = (str(nvcc), "-ptx", "-arch=sm_80", f"-ccbin={compiler}", str(source))
        include = f"-I{nvcc.parents[1] / 'include'}"
        done = LocalRunner().run((*command, include, "-o", str(target)))
        assert done.ok, done.output
        texts.append(target.read_text())
    reads = [bool(re.search(r"ld\.global", text)) for text in texts]
    assert reads == [True, False]  # an unsigned `char` is never negative

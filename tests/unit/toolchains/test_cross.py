"""Toolchains for another processor: compilers, pins, headers, and reasons."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.toolchains import build_tools, from_wheels
from kbuild.toolchains.cuda_toolkits import LocalCudaToolkits
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.wheels import installer
from kbuild.toolchains.wheels.cuda import CROSS_PROGRAMS
from kbuild.toolchains.wheels.lock import LockedToolkit, ToolchainLock
from tests.support.toolkit_wheels import PREFIX, fill
from tests.support.wheel_index import make_wheel, pinned, serve

ARM = "aarch64-linux"
X86 = System("x86_64", "linux")
CPU = Requirements("cpu", torch="2.14", system=ARM)
CUDA = Requirements("cuda", torch="2.14", toolkit="13.0", system=ARM)


@pytest.fixture(autouse=True)
def x86_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (build_tools, from_wheels):
        monkeypatch.setattr(module, "host_system", lambda: X86)


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Programs on PATH, and no others."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("aarch64-linux-gnu-g++", "aarch64-linux-gnu-g++-14"), "aarch64-linux-gnu-g++"),
        (("aarch64-linux-gnu-g++-12", "aarch64-linux-gnu-g++-13"), "aarch64-linux-gnu-g++-13"),
        (("aarch64-linux-gnu-g++-10", "g++"), None),
    ],
    ids=["without a release", "the newest", "too old"],
)
def test_compiler_for_another_processor(tmp_path, monkeypatch, names, found) -> None:
    programs(tmp_path / "bin", monkeypatch, *names)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    program = build_tools.find_cross_cxx(System.parse(ARM))
    assert (program and program.name) == found
    if program is None:
        with pytest.raises(ToolchainError, match="no C\\+\\+ compiler for aarch64-linux") as error:
            build_tools.find_cxx(ARM)
        assert error.value.hint == "apt install g++-aarch64-linux-gnu"
    else:
        assert build_tools.find_cxx(ARM) == program


@pytest.fixture
def wheels(tmp_path: Path) -> Iterator[WheelToolchains]:
    """A source for aarch64; the index has Torch and the runtime for both processors."""
    shelf = tmp_path / "shelf"
    lock = fill(shelf)
    tag = "py3-none-manylinux_2_28_aarch64"
    runtime = {f"{PREFIX}/lib/libcudart.so.13": b"arm", f"{PREFIX}/include/cuda.h": b"left out"}
    made = [
        make_wheel(shelf, name, "13.0.88", runtime if "runtime" in name else {}, tag=tag)
        for name in CROSS_PROGRAMS
    ]
    toolkit = LockedToolkit("13.0.3.0", tuple(map(pinned, made)), ())
    torch = {"2.14": replace(lock.torch["2.14"], headers=None)}
    pins = replace(lock, cross={"aarch64": ToolchainLock({"13.0": toolkit}, torch)})
    with serve(shelf) as served:
        yield WheelToolchains(
            LocalRunner(), tmp_path / "cache", lock=pins, settings=served.settings, cross=ARM
        )


def reason_of(wheels: WheelToolchains, requires: Requirements) -> str | None:
    return wheels.unsupported_reason(requires)


def test_reasons(wheels, tmp_path, monkeypatch) -> None:
    programs(tmp_path / "none", monkeypatch)
    package = "needs a C++ compiler for aarch64-linux; install g++-aarch64-linux-gnu"
    assert reason_of(wheels, CPU) == package
    programs(tmp_path / "bin", monkeypatch, "aarch64-linux-gnu-g++")
    assert reason_of(wheels, CPU) is None
    assert reason_of(wheels, CUDA) is None
    assert "needs x86_64-linux" in reason_of(wheels, replace(CPU, system="x86_64-linux"))
    assert "no toolchain from wheels" in reason_of(replace(wheels, cross="aarch64-darwin"), CPU)
    assert "the lock pins none" in reason_of(wheels, Requirements("cpu", tvm_ffi="0.1", system=ARM))
    old = reason_of(wheels, replace(CUDA, toolkit="12.6"))
    assert "the wheels of CUDA 12.6 have no nvcc" in old


def test_an_installed_toolkit_needs_the_libraries_of_the_target(tmp_path) -> None:
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.6, V12.6.85'\n")
    nvcc.chmod(0o755)
    toolkits = LocalCudaToolkits(
        FactCache(tmp_path / "cache"),
        LocalRunner(),
        {"CUDA_HOME": str(tmp_path / "cuda")},
        tmp_path / "usual",
        "sbsa-linux",
    )
    assert "none with targets/sbsa-linux is at $CUDA_HOME" in toolkits.unsupported_reason("12.6")
    (tmp_path / "cuda" / "targets" / "sbsa-linux" / "lib").mkdir(parents=True)
    assert toolkits.unsupported_reason("12.6") is None
    assert toolkits.provide("12.6").flags == "--target-directory=sbsa-linux"


@pytest.mark.compile
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler for link stubs")
def test_toolkit_with_the_libraries_of_both_processors(wheels, monkeypatch) -> None:
    monkeypatch.setattr(installer, "find_cxx", lambda _=None: Path(shutil.which("c++")))
    entry = wheels.installer.cross_cuda("13.0", ARM)
    root, native = entry.root, wheels.installer.cuda("13.0")
    target = root / "targets" / "sbsa-linux"
    assert (root / "lib/libcudart.so.13").read_bytes() == b"cudart"
    assert (target / "lib/libcudart.so").read_bytes() == b"arm"
    assert (target / "include/cuda.h").read_bytes() != b"left out"
    assert (target / "lib/libcublas.so").exists()
    assert (target / "lib/stubs/libcuda.so").exists()
    library = "-L$(TOP)/targets/sbsa-linux/lib"
    assert library in (root / "bin/nvcc.profile").read_text()
    assert library not in (native.root / "bin/nvcc.profile").read_text()
    # nvcc finds the target from its own path.
    assert (root / "bin/nvcc").samefile(native.root / "bin/nvcc")
    assert not (root / "bin/nvcc").is_symlink()
    assert [part.name for part in entry.parts] == [native.name]
    assert entry.differences() == ()


def test_python_headers_of_debian(tmp_path) -> None:
    include = tmp_path / "include" / "python3.11"
    config = tmp_path / "include" / "x86_64-linux-gnu" / "python3.11" / "pyconfig.h"
    facts = {"python": {"include_dir": str(include), "executable": "python"}}
    store = Store(tmp_path / "store")
    assert from_wheels.cross_python(facts, ARM, store) == facts
    config.parent.mkdir(parents=True)
    config.write_text("#define SIZEOF_LONG 8\n")
    own, more = from_wheels.cross_python(facts, ARM, store)["python"]["include_dir"].split(";")
    assert own == str(include)
    copied = Path(more, "aarch64-linux-gnu", "python3.11", "pyconfig.h")
    assert copied.read_text() == config.read_text()

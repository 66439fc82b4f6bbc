"""What this machine's newer compiler links runs where the policy's libraries are older.

Nothing here shows it on such a system: the versions that a file asks for are read from its bytes.
"""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbuild.checks.base import Output
from kbuild.checks.manylinux import ManylinuxCheck
from kbuild.checks.readers.elf import read_elf
from kbuild.checks.static import StaticCheck
from kbuild.checks.undefined import UndefinedCheck
from kbuild.project.variant import Variant
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.manylinux.compiler import DEFAULT_POLICY, glibc_release
from kbuild.toolchains.manylinux.environment import (
    SYSTEM_LIBRARIES,
    LinkEnvironment,
    link_environment,
)
from tests.support.command_project import CommandProject

pytestmark = pytest.mark.compile

SOURCES = Path(__file__).with_name("sources")
CPU = platform.machine()
NAMES = ("g++", "g++-11", "g++-13", "g++-14", "clang++", "clang++-16")
COMPILERS = [name for name in NAMES if shutil.which(name)] or ["g++"]
CALL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.stress.restype = ctypes.c_char_p
print(library.stress().decode())
"""
IN_TORCH = """
import sys, torch
torch.ops.load_library(sys.argv[1])
ops = torch.ops.kbuild_stress
assert ops.run() == "", ops.run()
assert ops.checked(3) == 3
for call, kind, text in (
    (lambda: ops.checked(-2), RuntimeError, "got -2 and 2.5"),
    (lambda: ops.standard(1), IndexError, "out of range"),
    (lambda: ops.standard(0), RuntimeError, "no file"),
):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit(f"{text}: nothing was raised")
assert "nowhere" in ops.caught(), ops.caught()
print("good")
"""


@dataclass(frozen=True)
class Link:
    """One compiler, with and without its environment."""

    cxx: Path
    environment: LinkEnvironment
    folder: Path

    def compile(self, name: str, *flags: str) -> Path:
        target = self.folder / f"{name}.o"
        source = str(SOURCES / f"{name}.cpp")
        self._run("-std=c++20", "-O1", "-fPIC", *flags, "-c", source, "-o", str(target))
        return target

    def link(
        self, *objects: Path, libraries: tuple[str | Path, ...] = (), portable: bool = True
    ) -> Path:
        target = self.folder / ("portable.so" if portable else "plain.so")
        system = shlex.split(SYSTEM_LIBRARIES) if portable else ()
        options = shlex.split(self.environment.options) if portable else ()
        inputs = (*map(str, objects), *system, *map(str, libraries), *system)
        self._run("-shared", "-o", str(target), *options, *inputs)
        return target

    def _run(self, *arguments: str) -> None:
        subprocess.run((str(self.cxx), *arguments), check=True)  # noqa: TID251


@pytest.fixture(scope="module", params=COMPILERS)
def link(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Link:
    found = shutil.which(request.param)
    if found is None:
        pytest.skip(f"no {request.param} on this machine")
    folder, runner = tmp_path_factory.mktemp("link"), LocalRunner()
    release = glibc_release(Path(found), FactCache(folder), runner)
    if release is None or release <= (2, 28):
        pytest.skip(f"this machine's C library is not newer than {DEFAULT_POLICY}")
    return Link(
        Path(found), link_environment(DEFAULT_POLICY, CPU, Path(found), folder, runner), folder
    )


@pytest.fixture(scope="module")
def stress(link: Link) -> Path:
    return link.compile("stress", *_openmp(link))


def _openmp(link: Link) -> tuple[str, ...]:
    return () if "clang" in link.cxx.name else ("-fopenmp",)


def findings(library: Path) -> list[str]:
    """What the checks say, each file being a variant of its own."""
    root = library.with_name(f"{library.stem}-variant")
    root.mkdir(exist_ok=True)
    shutil.copy(library, root / "it.so")
    output = Output(root, Variant.parse(f"torch213-cxx11-cpu-{CPU}-linux"), redistributable=True)
    checks = (ManylinuxCheck(), StaticCheck(), UndefinedCheck())
    return [str(finding) for check in checks for finding in check.run(output)]


def python(code: str, library: Path) -> str:
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-c", code, str(library)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.quick
def test_only_the_environment_makes_it_portable(link: Link) -> None:
    unit = link.compile("newer")
    plain = "\n".join(findings(link.link(unit, portable=False)))
    assert "GLIBC_2.3" in plain
    assert "GLIBCXX_3.4.2" in plain
    assert findings(link.link(unit)) == []


def test_everything_at_once(link: Link, stress: Path) -> None:
    library = link.link(stress, libraries=_openmp(link))
    assert findings(library) == []
    assert python(CALL, library) == ""
    exported = {symbol.name for symbol in read_elf(library).exported}
    assert "stress" in exported
    assert not exported & {"stat", "arc4random", "__libc_single_threaded", "__isoc23_strtol"}


def test_the_other_checker_agrees(link: Link, stress: Path) -> None:
    checker = pytest.importorskip("kernel_abi_check")
    library = link.link(stress, libraries=_openmp(link))
    assert checker.ObjectFile(str(library)).check_manylinux(DEFAULT_POLICY) == []


def test_there_is_one_copy_of_what_old_systems_have(link: Link) -> None:
    library = link.link(link.compile("cow"))
    assert findings(library) == []
    shared = next(s for s in read_elf(library).symbols if "_S_empty_rep_storage" in s.name)
    assert (shared.defined, shared.library) == (False, "libstdc++.so.6")


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_exceptions_cross_into_torch_and_back(link: Link, stress: Path) -> None:
    root = Path(next(iter(importlib.util.find_spec("torch").submodule_search_locations)))
    unit = link.compile("op", f"-isystem{root / 'include'}", "-Wno-deprecated-declarations")
    torch = [root / "lib" / f"lib{name}.so" for name in ("torch", "torch_cpu", "c10")]
    library = link.link(unit, stress, libraries=(*_openmp(link), *torch))
    assert findings(library) == []
    assert python(IN_TORCH, library) == "good"


HIDING = """#!/bin/sh
[ "$1" = -print-file-name=libstdc++.a ] && echo libstdc++.a && exit
exec {cxx} "$@"
"""


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_the_examples_keep_the_promise(example: Callable[[str], CommandProject]) -> None:
    entry = example("relu-stable-abi", kept=True).built("--backend", "cpu")
    assert entry["findings"] == []


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_without_a_static_libstdcxx_it_builds_with_a_warning(
    example: Callable[[str], CommandProject], tmp_path: Path
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(HIDING.format(cxx=shutil.which("g++")))
    compiler.chmod(0o755)
    bench = example("relu-stable-abi")
    done = bench.kbuild("build", "--backend", "cpu", env={"CXX": str(compiler)})
    assert "not linked for manylinux_2_28" in done.stderr
    assert "libstdc++-" in done.stderr

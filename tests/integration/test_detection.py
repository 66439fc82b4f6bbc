"""Compilers are looked at once per toolchain, and again when they change."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject
from tests.support.tiny_project import write_tiny

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="answers are kept on Linux"),
]
FOUND = "The CXX compiler identification is"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandProject, Path]:
    """A project that was built with a compiler of its own."""
    bench = write_tiny(tmp_path_factory.mktemp("known"), "cpu")
    program = bench.cache / "c++"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("c++")} "$@"\n')
    program.chmod(0o755)
    assert FOUND in (rebuilt(bench, program) / "log" / "configure.log").read_text()
    return bench, program


def rebuilt(bench: CommandProject, program: Path) -> Path:
    """The workspace of a build that starts without one."""
    shutil.rmtree(bench.root / ".kbuild", ignore_errors=True)
    shutil.rmtree(bench.root / "build", ignore_errors=True)
    bench.kbuild("build", "--backend", "cpu", env={"CXX": str(program)})
    return workspace(bench)


def workspace(bench: CommandProject) -> Path:
    (log,) = bench.root.glob(".kbuild/*/log/configure.log")
    return log.parents[1]


def library(bench: CommandProject) -> bytes:
    (found,) = bench.root.glob("build/*/*.so")
    return found.read_bytes()


def how(space: Path) -> tuple[str, ...]:
    """Every command and rule of the tree, as far as a build depends on it."""
    tree = space / "tree"
    ninja = (tree / "build.ninja").read_text()
    wanted = r"^build .*|^  (?:FLAGS|LINK_\w+) = .*"
    edges = [
        edge  # but what cmake runs again for
        for edge in re.findall(wanted, ninja, re.MULTILINE)
        if "CMakeLists.txt " not in edge
    ]
    files = ("compile_commands.json", "CMakeFiles/rules.ninja", "cmake_install.cmake")
    return (*edges, *((tree / file).read_text() for file in files))


def test_a_toolchain_that_is_known_is_not_asked_again(known: tuple[CommandProject, Path]) -> None:
    bench, program = known
    before, bytes_before = how(workspace(bench)), library(bench)
    again = rebuilt(bench, program)
    assert FOUND not in (again / "log" / "configure.log").read_text()
    assert how(again) == before
    assert library(bench) == bytes_before


def test_a_compiler_that_changed_is_asked_again(known: tuple[CommandProject, Path]) -> None:
    bench, program = known
    program.write_text(f'#!/bin/sh\n# newer\nexec {shutil.which("c++")} "$@"\n')
    assert FOUND in (rebuilt(bench, program) / "log" / "configure.log").read_text()

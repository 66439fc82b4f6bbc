"""Fixtures of all tests: projects and libraries."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.plan.project import Project, open_project
from tests.support.projects import write_project


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """Write and open a small project: `project(section, ..., backends=("cpu", "cuda"))`."""

    def make(*parts: str, backends: tuple[str, ...] = ("cpu",)) -> Project:
        return open_project(write_project(tmp_path / "project", *parts, backends=backends))

    return make


@pytest.fixture
def compiler() -> str:
    program = shutil.which("g++")
    if program is None:
        pytest.skip("no g++ on this machine")
    return program


@pytest.fixture
def library(tmp_path: Path, compiler: str) -> Callable[..., bytes]:
    """The bytes of a shared library: source text, link flags, stripped or not."""

    def build(
        source: str, *flags: str, language: str = "c", strip: bool = False, soname: str = ""
    ) -> bytes:
        folder = tmp_path / "objects"
        folder.mkdir(exist_ok=True)
        target = folder / (soname or "out.so")
        named = [f"-Wl,-soname,{soname}"] if soname else []
        command = [compiler, "-shared", "-fPIC", "-O0", "-x", language, "-", "-x", "none"]
        subprocess.run(  # noqa: TID251
            [*command, "-o", str(target), *named, *flags], input=source, text=True, check=True
        )
        if strip:
            subprocess.run(["strip", "--strip-all", str(target)], check=True)  # noqa: TID251
        return target.read_bytes()

    return build

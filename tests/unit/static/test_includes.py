"""Includes of sources that nothing compiles here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.backends import BACKENDS
from kbuild.checks.base import Finding
from kbuild.identity import Identity
from kbuild.project import open_project
from kbuild.selection import project_variants
from kbuild.sources.cxx import read_cxx
from kbuild.sources.includes import IncludeLine
from kbuild.sourcetree import SourceTree
from kbuild.static.includes import check_includes
from tests.support.projects import plan_variant

BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["metal"]

[torch]
src = ["torch-ext/binding.cpp", "torch-ext/binding.h"]

[kernel.demo]
backend = "metal"
depends = ["torch"]
include = ["shared"]
src = ["gpu/demo.metal", "gpu/demo.mm"]
"""
FILES = {
    "torch-ext/binding.cpp": '#include "not-read-here.h"\n',
    "torch-ext/binding.h": '#pragma once\n#include "registration.h"\n#include <torch/torch.h>\n',
    "torch-ext/demo/__init__.py": "",
    "gpu/demo.metal": '#include <metal_stdlib>\n#include "tile.h"\n#include "wide.h"\n',
    "gpu/tile.h": '#ifndef TILE_H\n#define TILE_H\n#include "../shared/deep/wide.h"\n#endif\n',
    "gpu/demo.mm": "#import <Metal/Metal.h>\n"
    '#include "torch/all.h"\n#include "embedded_metallib.h"\n',
    "shared/wide.h": "#pragma once\n",
    "shared/deep/wide.h": "#pragma once\n",
}
Look = Callable[..., tuple[tuple[str, ...], tuple[Finding, ...]]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """`look({"gpu/demo.mm": text})`: files that were read, and findings."""

    def run(changes: dict[str, str] | None = None) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
        for path, text in ({"build.toml": BUILD} | FILES | (changes or {})).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        project, tree = open_project(tmp_path), SourceTree(tmp_path)
        made = plan_variant(project, project_variants(project)[0], Identity("check"))
        asked = BACKENDS.get("metal").include_check
        assert asked
        return check_includes(made, tree, asked)

    return run


def test_everything_leads_somewhere(look: Look) -> None:
    files, findings = look()
    assert findings == ()
    assert set(files) == set(FILES) - {"torch-ext/binding.cpp", "torch-ext/demo/__init__.py"}


@pytest.mark.parametrize("path", ["gpu/demo.metal", "gpu/demo.mm", "gpu/tile.h"])
def test_an_include_that_leads_nowhere(look: Look, path: str) -> None:
    _, (found,) = look({path: '// one\n/* #include "two.h"\n*/\n  #  include "gone.h"\n'})
    assert (found.check, found.severity, found.where) == ("includes", "error", f"{path}:4")
    assert "`gone.h`" in found.what
    assert "`shared`" in found.hint
    assert "`gpu`" in found.hint


def test_a_header_that_only_a_header_includes(look: Look) -> None:
    _, (found,) = look({"shared/deep/wide.h": '#include "gone.h"\n'})
    assert found.where == "shared/deep/wide.h:1"


def test_a_folder_of_another_section_does_not_serve(look: Look) -> None:
    _, (found,) = look({"torch-ext/binding.h": '#include "wide.h"\n'})
    assert found.where == "torch-ext/binding.h:1"


def test_below_a_condition_it_is_a_warning(look: Look) -> None:
    text = '#ifdef CUDA_KERNEL\n#include "gone.h"\n#endif\n#include "gone2.h"\n'
    _, found = look({"gpu/demo.mm": text})
    assert [(f.severity, f.where) for f in found] == [
        ("warning", "gpu/demo.mm:2"),
        ("error", "gpu/demo.mm:4"),
    ]


def test_lines_kinds_and_guards() -> None:
    text = '// x\n#ifndef A_H\n#define A_H\n#include <a>\n#if B\n#import "b.h"\n#endif\n#endif\n'
    assert read_cxx(text).includes == (
        IncludeLine("a", 4, is_quoted=False, is_next=False),
        IncludeLine("b.h", 6, is_quoted=True, is_next=False, is_conditional=True),
    )

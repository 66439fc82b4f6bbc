"""Namespaces in C++ sources are judged with the headers that they include, before a build."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbuild.checks.allow import is_overruling_offered
from kbuild.checks.base import Finding
from kbuild.pipeline.source_checks import binding_findings, python_findings
from kbuild.pipeline.variant import _without_consequences
from kbuild.project import Project
from tests.support.projects import BINDING, kernel


def places(project: Project, *backends: str) -> list[str]:
    return [found.where for found in binding_findings(project, backends or ("cpu",))]


@pytest.fixture
def made(project: Callable[..., Project]) -> Project:
    return project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))


def test_a_literal_in_an_included_header_is_found(made: Project) -> None:
    (made.root / "torch-ext/binding.cpp").write_text('#include "names.h"\nOPEN(m) {}\n')
    (made.root / "torch-ext/names.h").write_text("#define OPEN(m) TORCH_LIBRARY(mine, m)\n")
    assert places(made) == ["torch-ext/names.h:1"]


def test_a_kernel_source_counts_and_that_of_another_backend_does_not(made: Project) -> None:
    (made.root / "src/k.cu").write_text("TORCH_LIBRARY_FRAGMENT(mine, m) {}\n")
    assert places(made) == []
    (made.root / "src/k.cpp").write_text("\nTORCH_LIBRARY_FRAGMENT(mine, m) {}\n")
    assert places(made) == ["src/k.cpp:2"]
    assert places(made, "cuda", "cpu") == ["src/k.cu:1", "src/k.cpp:2"]


def test_what_kbuild_writes_itself_is_not_judged(made: Project) -> None:
    (made.root / "torch-ext/binding.cpp").write_text('#include "registration.h"\n')
    (made.root / "torch-ext/registration.h").write_text("#define TORCH_EXTENSION_NAME x\n")
    assert places(made) == []


CAPTURED = """
[kernel.norm]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["torch-ext/my_kernel/layers/__init__.py"]

[[kernel.norm.capture]]
function = "layers:norm"
arguments = { x = { shape = ["N"], dtypes = ["float32"] } }
"""


@pytest.mark.parametrize(("section", "count"), [(CAPTURED, 0), (kernel("cuda"), 1)])
def test_the_functions_that_are_captured_count_as_there(
    project: Callable[..., Project], section: str, count: int
) -> None:
    made = project("[torch]\n", section, backends=("cuda",))
    (made.root / "torch-ext/my_kernel/__init__.py").write_text("from ._captured import norm\n")
    assert len(python_findings(made, ("torch",))) == count


def test_what_a_missing_symbol_leads_to_is_not_said_again() -> None:
    missing = Finding("undefined", "error", "k.so", "nobody defines `f()`", symbols=("_Z1fv",))
    load = Finding("load", "error", ".", "ImportError: k.so: undefined symbol: _Z1fv")
    other = Finding("load", "error", ".", "ImportError: k.so: undefined symbol: g")
    assert _without_consequences([missing, load, other]) == [missing, other]
    assert not is_overruling_offered("undefined")
    assert is_overruling_offered("load")

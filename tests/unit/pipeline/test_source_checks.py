"""Checks of sources before a build."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbuild.checks.allow import is_overruling_offered
from kbuild.checks.base import Finding
from kbuild.pipeline.source_checks import python_findings
from kbuild.pipeline.variant import _without_consequences
from kbuild.plan.project import Project
from tests.support.projects import kernel

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

"""The registry of checks, and all of them together on good variants."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks import CHECKS, Output
from kbuild.checks.base import run_checks

EXPECTED = (
    "binary",
    "imports",
    "layout",
    "load",
    "manylinux",
    "metadata",
    "metadata-client",
    "needed",
    "ops",
    "python-abi",
    "rpath",
    "undefined",
    "unique",
)


def test_the_registry_finds_every_check() -> None:
    assert CHECKS.names() == EXPECTED


def test_every_check_says_what_it_proves() -> None:
    for check in CHECKS:
        assert check.summary.endswith(".")


def test_only_the_slow_ones_start_processes() -> None:
    assert [check.name for check in CHECKS if check.slow] == ["load", "metadata-client"]


def test_a_good_python_only_variant_has_no_findings(noarch: Callable[..., Output]) -> None:
    assert run_checks(noarch({"x.py": "from . import _ops\n"}), slow=False) == ()


@pytest.mark.torch
def test_slow_checks_on_a_good_variant(noarch: Callable[..., Output]) -> None:
    pytest.importorskip("kernels")
    assert run_checks(noarch(python=Path(sys.executable))) == ()


@pytest.mark.compile
def test_a_good_compiled_variant_has_no_findings(compiled: Callable[..., Output]) -> None:
    assert run_checks(compiled(), slow=False) == ()


def test_an_empty_folder_breaks_no_check(tmp_path: Path) -> None:
    found = run_checks(Output(tmp_path, None), slow=True)
    assert {finding.check for finding in found} == {"layout", "load"}

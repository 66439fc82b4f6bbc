"""Every seeded fault is found by the check that it is meant for and no other; good ones pass."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from kbuild.checks import CHECKS
from tests.seeded.make import good_cases
from tests.seeded.seeded_recipe import Case
from tests.seeded.seeded_table import CASES
from tests.seeded.seeded_variants import ROOT, make_case
from tests.seeded.seeded_verdict import findings_in, is_found, strangers

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine"),
]
HAS_CLIENT = all(map(importlib.util.find_spec, ("torch", "kernels")))
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/build.toml"))


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_seeded_fault_is_found(case: Case, tmp_path: Path) -> None:
    if case.loads and not HAS_CLIENT:
        pytest.skip("needs torch and kernels")
    found = findings_in(make_case(case, tmp_path), case.limits, load=case.loads)
    said = "\n".join(map(str, found))
    assert is_found(case, found), said
    assert strangers(case, found) == [], said


@pytest.mark.parametrize("case", good_cases(), ids=named)
def test_a_good_variant_has_no_findings(case: Case, tmp_path: Path) -> None:
    assert findings_in(make_case(case, tmp_path)) == []


@pytest.mark.torch
@pytest.mark.skipif(not HAS_CLIENT, reason="needs torch and kernels")
def test_a_good_variant_loads(tmp_path: Path) -> None:
    (good, *_) = good_cases()
    assert findings_in(make_case(good, tmp_path), load=True) == []


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_sources_of_the_examples_have_no_findings(folder: Path) -> None:
    assert findings_in(folder) == []


def test_every_check_has_a_fault_to_find() -> None:
    of_sources = {"flags", "pointers"}
    assert {case.check for case in CASES} == {check.name for check in CHECKS} | of_sources


def test_names_are_told_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 30

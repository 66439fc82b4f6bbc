"""Which variants start first, and what their units are expected to take."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from kbuild.build.unit_log import UNIT_LOG_FILE
from kbuild.dsl.candidates import planned_units
from kbuild.pipeline.build import expected_units, longest_first
from kbuild.plan.project import open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity
from kbuild.system.executor import IMAGES
from kbuild.system.workspace import Workspace
from tests.support.projects import BINDING, kernel, plan_variant

CLEAN = Identity("abc1234", "f" * 40)


def test_one_of_each_toolkit_leads_and_nothing_is_lost(project) -> None:
    made = project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))
    choices = select_variants(made, Selection(globs=("torch21[34]-*-x86_64-linux",)))
    plans = [plan_variant(made, choice, CLEAN) for choice in choices]
    ordered = longest_first(plans)
    assert sorted(one.variant for one in ordered) == sorted(one.variant for one in plans)
    toolkits = {(one.requires.backend, one.requires.toolkit) for one in plans}
    front = ordered[: len(toolkits)]
    assert {(one.requires.backend, one.requires.toolkit) for one in front} == toolkits
    assert len(toolkits) > 2
    assert front[-1].requires.backend == "cpu"
    assert all(len(a.archs) >= len(b.archs) for a, b in pairwise(front))
    rest = [one.variant for one in ordered[len(toolkits) :]]
    assert rest == [one.variant for one in plans if one.variant in rest]


@pytest.fixture
def plans(project):
    """Of a C++ binding that begins with Torch's headers, and a CUDA source of the same size."""
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    choices = select_variants(made, Selection(globs=("torch213-*-cu130-x86_64-linux",)))
    planned = [plan_variant(made, choice, CLEAN) for choice in choices]
    paths = {s.language: s.path for part in planned[0].components for s in part.compiled}
    for path in paths.values():
        (made.root / path).write_text("#include <torch/library.h>\n")
    return made.root, planned, paths


def logged(root: Path, unit: str, seconds: float) -> None:
    record = {
        "unit": unit, "variant": "", "language": "CXX", "start": 0, "end": seconds, "status": 0,
        "cache": "miss",
    }  # fmt: skip
    log = Workspace.report_of(root) / UNIT_LOG_FILE
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(f"{json.dumps(record)}\n")


def test_units_take_what_they_took_before(plans) -> None:
    root, planned, paths = plans
    logged(root, paths["CUDA"], 40)
    found = expected_units(root, planned)[0][planned[0].variant]
    assert found[paths["CUDA"]] == 40
    assert 0 < found[paths["CXX"]] < 40  # one arch, and the rate of the other


def test_images_that_variants_share_are_expected_once() -> None:
    root = Path(__file__).resolve().parents[3] / "examples" / "rmsnorm-triton"
    made = open_project(root)
    choices = select_variants(made, Selection(globs=("*-cu13?-x86_64-linux",)))
    planned = [plan_variant(made, choice, CLEAN) for choice in choices]
    assert len(planned) > 1
    found, _ = expected_units(root, planned)
    images = [
        sum(size for unit, size in found[plan.variant].items() if unit.startswith(IMAGES))
        for plan in planned
    ]
    (kernel_of_norm,) = planned[0].aot
    count = sum(map(len, filter(None, planned_units(kernel_of_norm, root).values())))
    assert count > 2 * len(kernel_of_norm.targets)
    assert images[0] == count * 10_000.0
    assert images[1:] == [0.0] * (len(planned) - 1)

"""`capture` in `build.toml`, and what the project has of it, as sections and plans."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.ops.tuned_tables import TunedRow, TunedTable, table_text
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity
from kbuild.system.errors import ConfigError
from tests.support.projects import plan_variant

SECTION = """
[torch]
stable-abi = "2.11"

[kernel.add]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["add.py"]

[[kernel.add.capture]]
function = "add:total"
[kernel.add.capture.arguments]
x = { shape = ["N"], dtypes = ["float32"] }
"""
OP = {
    "schema": "total(Tensor x) -> (Tensor out)",
    "shapes": {"x": ["N"], "out": [1]},
    "dtypes": {"x": ["float32"], "out": "float32"},
    "launch": [
        {
            "function": "k", "grid": [1],
            "configs": [{"num_warps": 4, "when": "N < 64"}, {"num_warps": 8, "when": "N >= 64"}],
        }
    ],
    "tune": {"sizes": {"N": [64, 1024]}},
}  # fmt: skip
FILE = {
    "format": 1, "source": "add.py", "digest": "", "declaration": "", "name": "total",
    "schema": "total(Tensor x) -> Tensor", "parameters": [["x", ""]], "all_parameters": ["x"],
    "tensors": ["x"], "outputs": ["out"], "backward": None,
    "forward": {
        "name": "total", "arguments": ["x"], "results": ["out"], "outputs": [["result", "out"]],
    },
    "ops": [OP],
}  # fmt: skip


class Planned:
    """Plans a project that captures a function, and gives its only kernel."""

    def __init__(self, root: Path, project: Callable[..., Project]) -> None:
        self.root, self._project = root, project

    def open(self, text: str) -> Project:
        (self.root / "captured").mkdir(parents=True, exist_ok=True)
        (self.root / "add.py").write_text("def total(x): ...\n")
        (self.root / "captured" / "add.total.json").write_text(json.dumps(FILE))
        return self._project(text, backends=("cuda",))

    def plan(self, text: str = SECTION) -> VariantPlan:
        project = self.open(text)
        (choice,) = select_variants(project, Selection(globs=("*-cu130-x86_64-linux",)))
        return plan_variant(project, choice, Identity("abc1234", "f" * 40), ())

    def __call__(self, tune: str = "", section: str = SECTION) -> AotKernel:
        (kernel,) = self.plan(section + tune).aot
        return kernel

    def warnings(self, file: str) -> list[str]:
        problems = self.open(SECTION).warnings
        return [problem.message for problem in problems if file in problem.file]


@pytest.fixture
def planned(project, tmp_path: Path) -> Planned:
    return Planned(tmp_path / "project", project)


def test_the_author_lists_other_calls(planned) -> None:
    kernel = planned("[kernel.add.capture.tune]\ncases = [{ N = 7 }]\n")
    assert kernel.section.ops[0].tune.cases == ((("N", 7),),)


def test_a_kernel_that_a_dsl_has_written_is_one_of_its_language(planned, tmp_path) -> None:
    pins = '["ninetoothed==0.26.0", "triton==3.9.0"]'
    text = SECTION.replace('"triton"', '"ninetoothed"').replace('"triton==3.9.0"', pins)
    with pytest.raises(ConfigError, match=r"`captured/add_total\.py` does not exist"):
        planned(section=text)
    (tmp_path / "project" / "captured" / "add_total.py").write_text("")
    kernel = planned(section=text)
    assert (kernel.language, kernel.toolchain) == ("triton", ("triton==3.9.0",))
    assert kernel.sources == ("captured/add_total.py",)
    assert kernel.section.issues == ()
    assert kernel.section.ops[0].language == "triton"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("sizes = { M = [7] }", "`M` is neither a size nor an argument of the tuned ops"),
        ("cases = [{ N = 7, K = 1 }]", "`K` is neither a size nor an argument"),
        ('reference = "a:b"', "are compared with their first candidate"),
    ],
)
def test_calls_that_no_op_has(planned, table: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(f"[kernel.add.capture.tune]\n{table}\n")
    (problem,) = [each for each in caught.value.problems if each.severity == "error"]
    assert words in problem.message
    assert problem.key.startswith("kernel.add.capture[0].tune.")


@pytest.mark.parametrize("function", ["add:total", "{add}:{}.total"])
def test_a_function_that_is_not_captured_yet(project, tmp_path, function: str) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/add.py").write_text("def total(x): ...\n")
    section = SECTION.replace("add:total", function)
    made = project(section, backends=("cuda",))  # `kbuild capture` opens it
    (choice,) = select_variants(made, Selection(globs=("*-cu130-x86_64-linux",)))
    message = (
        rf"`{re.escape(function)}` is not captured: `captured/add\.total\.json` does not exist"
    )
    with pytest.raises(ConfigError, match=message):
        plan_variant(made, choice, Identity("abc1234", "f" * 40), ())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1, "ops": 3}'])
@pytest.mark.parametrize("damage", ["whole", "ops", "forward"])
def test_a_damaged_file_costs_no_more_than_another_capture(
    project, tmp_path, text: str, damage: str
) -> None:
    content = text if damage == "whole" else json.dumps({**FILE, damage: text})
    (tmp_path / "project/captured").mkdir(parents=True)
    (tmp_path / "project/add.py").write_text("def total(x): ...\n")
    (tmp_path / "project/captured/add.total.json").write_text(content)
    made = project(SECTION, backends=("cuda",))  # `kbuild capture` opens it
    (choice,) = select_variants(made, Selection(globs=("*-cu130-x86_64-linux",)))
    with pytest.raises(ConfigError, match=r"capture|no build takes"):
        plan_variant(made, choice, Identity("abc1234", "f" * 40), ())


def test_rows_of_captured_functions(planned, tmp_path) -> None:
    tables = tmp_path / "project/tuned"
    tables.mkdir(parents=True)
    row = TunedRow(
        "add_total", "total", 0, (("x", "float32"), ("out", "float32")), (), (),
        (("num_warps", 4),), 1.0, 2.0,
    )  # fmt: skip
    rows = (row, replace(row, launch=1))
    (tables / "nvidia-h200.json").write_text(table_text(TunedTable("NVIDIA H200", "sm_90", rows)))
    planned()
    (warning,) = planned.warnings("nvidia-h200")
    assert "rows[1]: `total` has no launch 1" in warning

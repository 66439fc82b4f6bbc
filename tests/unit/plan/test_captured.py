"""Captured functions in plans: the author's table for `kbuild tune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.plan.plan import AotKernel
from kbuild.plan.selection import Selection, select_variants
from kbuild.project.identity import Identity
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
    "forward": {}, "ops": [OP],
}  # fmt: skip


@pytest.fixture
def planned(project, tmp_path: Path):
    def run(tune: str = "", section: str = SECTION) -> AotKernel:
        root = tmp_path / "project"
        (root / "captured").mkdir(parents=True, exist_ok=True)
        (root / "add.py").write_text("def total(x): ...\n")
        (root / "captured" / "add.total.json").write_text(json.dumps(FILE))
        made = project(section + tune, backends=("cuda",))
        (choice,) = select_variants(made, Selection(globs=("*-cu130-x86_64-linux",)))
        (kernel,) = plan_variant(made, choice, Identity("abc1234", "f" * 40), ()).aot
        return kernel

    return run


def test_conditions_of_a_captured_function_are_for_all_calls(planned) -> None:
    kernel = planned()
    assert kernel.name == "add_total"
    assert kernel.section.issues == ()
    assert [c.when is None for c in kernel.section.ops[0].launches[0].candidates] == [False] * 2
    assert kernel.section.ops[0].tune.cases == ((("N", 64),), (("N", 1024),))


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
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.key.startswith("kernel.add.capture[0].tune.")

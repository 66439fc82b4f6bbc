"""Hooks of a kernel's own autotuning: what the op does in their place."""

from __future__ import annotations

from typing import Any

import pytest

from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch
from kbuild.dsl.resolve import apply_hooks
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.candidates import with_candidates
from kbuild.ops.language import KernelFunction
from kbuild.ops.steps import Candidate
from kbuild.project.config.issue import IssueCollector
from tests.support.sections import read

PARAMETERS = ("x_ptr", "acc", "out_ptr", "part", "N", "BLOCK!")
CANDIDATES = tuple(Candidate((("BLOCK", size),), (("num_warps", 4),)) for size in (64, 128))
HEAD = """
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.k.op]]
schema = "k(Tensor x, Tensor(a!) acc) -> Tensor out"
shapes = { x = ["N"], acc = ["N"], out = ["N"], part = ["N"] }
dtypes = { x = ["float32", "float16"], acc = ["int32"], out = "x", part = "x" }
temporaries = ["part"]
"""
ONE = 'grid = ["cdiv(N, BLOCK)"]\n'
NONE: dict[str, Any] = {"fills": [], "blocks": []}


def fills(*pairs: tuple[str, Any]) -> list[dict[str, Any]]:
    record = {"fills": [list(pair) for pair in pairs], "blocks": []}
    return [record, record]


TUNING = 'hooks = "tuning"\n'


def run(
    said: dict[str, Any], section: str = ONE + 'configs = "autotune"\n', names: Any = PARAMETERS
) -> tuple[Any, list[tuple[str, str]]]:
    """The op, and what is wrong: severity with message."""
    reading = read(HEAD + section)
    assert reading.issues == (), reading.issues
    (op,) = reading.ops
    hooks = {"configs": [fills(), fills()], "reset": [], "problems": [], **said}
    parameters = tuple(KernelParameter(p.rstrip("!"), p.endswith("!")) for p in names)
    function = KernelFunction("k", parameters, CANDIDATES, facts={"hooks": hooks})
    place, launches = IssueCollector(("kernel", "k")), []
    for launch in op.launches:
        whole = with_candidates(op, launch, CANDIDATES, place)
        assert whole is not None
        bound = bind(op, whole, dict.fromkeys(launch.functions, parameters), place)
        assert bound is not None, place.issues
        launches.append(ResolvedLaunch(op, whole, bound, function))
    found = apply_hooks(op, launches, place)
    return found, [(issue.severity, issue.message) for issue in place.issues]


def test_results_and_temporaries_that_tuning_resets():
    op, issues = run({"reset": [["out_ptr", 0], ["part", 0]]})
    assert issues == []
    assert op.fills == (("out", 0), ("part", 0))
    assert op.tune.resets == ()


def test_hooks_for_tuning_fill_nothing_that_the_op_allocates() -> None:
    reset = {"reset": [["out_ptr", 0], ["part", 0], ["acc", 0]]}
    op, issues = run(reset, ONE + 'configs = "autotune"\nfill = { out = 1 }\n' + TUNING)
    assert issues == []
    assert op.fills == (("out", 1),)
    assert op.tune.resets == (("acc", 0),)


def test_hooks_for_tuning_may_reset_none() -> None:
    section = ONE + 'configs = "autotune"\nargs = { part = "None" }\n'
    section = section.replace('temporaries = ["part"]', "")
    op, issues = run({"reset": [["part", 0]]}, section + TUNING)
    assert (op.tune.resets, issues) == ((), [])
    _, issues = run({"reset": [["part", 0]]}, section)
    assert issues == [("error", "hooks of `k` fill `part`, which is not a tensor")]


def test_hooks_that_somebody_else_runs():
    section = ONE + 'configs = "autotune"\nhooks = "none"\n'
    op, issues = run({"reset": [["out_ptr", 0], ["acc", 0]], "problems": ["odd"]}, section)
    assert (op.fills, op.tune.resets, issues) == ((), (), [])


def test_a_result_that_some_candidates_fill():
    op, issues = run({"configs": [fills(), fills(("out_ptr", "-inf"))]})
    assert issues == []
    assert op.fills == (("out", "-inf"),)


def test_an_argument_that_every_candidate_fills():
    said = {"configs": [fills(("acc", -1)), fills(("acc", -1))]}
    op, issues = run(said, ONE + 'configs = "autotune"\ncontiguous = ["acc"]\n')
    assert issues == []
    assert op.fills == (("acc", -1),)


@pytest.mark.parametrize(
    ("said", "more", "words"),
    [
        ([fills(("acc", 0)), fills(("acc", 0))], "", "fill `acc`, which may have gaps"),
        ([fills(("acc", 0)), fills()], 'contiguous = ["acc"]', "fill `acc` in some calls"),
        ([fills(("x_ptr", 0))] * 2, "", "fill `x`, which the op only reads"),
        ([fills(("out_ptr", 0)), fills(("out_ptr", 1))], "", "with 0 and 1, by candidate"),
        ([fills(("N", 0))] * 2, "", "fill `N`, which is not a tensor"),
        ([fills(("out_ptr", 1e30))] * 2, "", "with 1e+30, but it may be float16"),
        (
            [fills(("out_ptr", 0))] * 2,
            "fill = { out = 1 }",
            "fill `out` with 0, but the op fills it with 1",
        ),
    ],
)
def test_what_an_op_cannot_do(said, more, words):
    _, issues = run({"configs": said}, f'{ONE}configs = "autotune"\n{more}\n')
    assert [severity for severity, _ in issues] == ["error"]
    assert words in issues[0][1]


def test_what_cannot_be_followed():
    said = {"problems": ["k.py:7: a candidate's `pre_hook` asks for `N`"]}
    _, issues = run(said)
    words = "hooks of `k` cannot be followed: k.py:7: a candidate's `pre_hook` asks for `N`"
    assert issues == [("error", words)]
    _, issues = run(said, ONE + "configs = [{ BLOCK = 64 }]\n")
    assert issues == [
        ("warning", f"{words}; they are left out, since `configs` lists the candidates")
    ]


def test_candidates_of_the_section():
    """Those that the kernel has keep their hooks; others get what all of the kernel's agree on."""
    listed = ONE + "configs = [{ BLOCK = 128, num_warps = 4 }]\n"
    assert run({"configs": [fills(), fills(("part", 0))]}, listed)[0].fills == (("part", 0),)
    assert run({"configs": [fills(("part", 0)), fills()]}, listed)[0].fills == ()
    other = ONE + "configs = [{ BLOCK = 256, num_warps = 4 }]\n"
    same = [fills(("part", 0)), fills(("part", 0))]
    assert run({"configs": same}, other)[0].fills == (("part", 0),)
    op, issues = run({"configs": [fills(("part", 0)), fills()]}, other)
    assert op.fills == ()
    assert [severity for severity, _ in issues] == ["warning"]
    assert "`configs` lists other candidates" in issues[0][1]


LAUNCHES = """
[[kernel.k.op.launch]]
function = "k"
grid = ["cdiv(N, BLOCK)"]
configs = "autotune"
[[kernel.k.op.launch]]
function = "k"
grid = ["cdiv(N, BLOCK)"]
configs = "autotune"
"""


def test_a_later_launch_must_not_clear_what_an_earlier_one_wrote():
    """Both launches have the hook here, so that of the second is at fault."""
    _, issues = run({"configs": [fills(("part", 0)), fills(("part", 0))]}, LAUNCHES)
    assert [one for _, one in issues] == ["hooks of `k` fill `part` after `k` has run with it"]


DESCRIPTORS = ("x_desc", "acc", "out_ptr", "part", "N", "BLOCK!")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (["BLOCK"], ""),
        ([None], ""),
        ([32], "gives `x_desc` the block [32], the section gives it [64]"),
        (["N"], "gives `x_desc` the block ['N']"),
    ],
)
def test_blocks_of_descriptors(block, words):
    section = ONE + 'configs = "autotune"\n[kernel.k.op.args]\n'
    section += 'x_desc = { tensor = "x", block = ["BLOCK"] }\n'
    sizes = [64, 128]
    configs = [
        [
            NONE,
            {"fills": [], "blocks": [["x_desc", [own if one is None else one for one in block]]]},
        ]
        for own in sizes
    ]
    _, issues = run({"configs": configs}, section, DESCRIPTORS)
    assert bool(issues) == bool(words)
    assert not words or words in issues[0][1]


def test_a_pointer_where_a_hook_wants_a_descriptor():
    record = {"fills": [], "blocks": [["x_ptr", [64]]]}
    _, issues = run({"configs": [[record, record]] * 2})
    assert "passes it without a block" in issues[0][1]

"""Which variants start first."""

from __future__ import annotations

from itertools import pairwise

from kbuild.identity import Identity
from kbuild.pipeline.build import longest_first
from kbuild.selection import Selection, select_variants
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

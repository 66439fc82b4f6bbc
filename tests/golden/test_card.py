"""The cards of the examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.publish.card import card_text
from kbuild.publish.card.facts import read_facts
from kbuild.publish.card.model import BenchmarkRun, Timing, VariantFacts

EXAMPLES = Path(__file__).parents[2] / "examples"
ARCHS = {"cuda": ("8.0", "9.0", "12.0+PTX"), "rocm": ("gfx90a", "gfx1100")}
RUN = BenchmarkRun(
    "a-gpu",
    "A GPU",
    "Torch 2.13.0, CUDA 13.0",
    "1a2b3c4",
    (
        Timing("large", 0.08, 0.002, 100, 0.2),
        Timing("large_half", 0.05, 0.001, 100, 0.2),
        Timing("small", 0.008, 0.0005, 100, 0.008),
    ),
)
MACHINES = (
    RUN,
    replace(
        RUN, name="a-cpu", machine="A CPU", timings=(Timing("large", 12.5), Timing("small", 0.02))
    ),
)


def built(name: str):
    """Facts of an example as if all its variants had been built; their sizes are made up."""
    project = open_project(EXAMPLES / name)
    variants = tuple(
        VariantFacts(str(v), v, ARCHS.get(v.backend, ()), 100_000 * (at + 1), "1a2b3c4")
        for at, v in enumerate(choice.variant for choice in select_variants(project, Selection()))
    )
    return project, replace(read_facts(project, project.root / "no-build"), variants=variants)


@pytest.mark.parametrize("name", ["relu", "relu-noarch", "relu-stable-abi", "relu-tvm-ffi"])
def test_cards_of_the_examples(name, golden):
    project, facts = built(name)
    card = card_text((project.root / "CARD.md").read_text("utf-8"), facts)
    golden(f"cards/{name}.md", card)


def test_a_card_with_everything(golden):
    project, facts = built("relu")
    first, second, *rest = facts.variants
    told = replace(
        facts,
        variants=(replace(first, dirty=True), replace(second, fault="it does not load"), *rest[:2]),
        runs=MACHINES,
        upstream="https://example.org/upstream",
        source="https://example.org/source",
    )
    card = card_text((project.root / "CARD.md").read_text("utf-8"), told)
    golden("cards/everything.md", card)

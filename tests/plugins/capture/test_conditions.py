from __future__ import annotations

import itertools
import random

import pytest

from kbuild.plugins.capture.conditions import tree_of
from kbuild.plugins.capture.values import evaluated

CHAIN = {0: [("a", True)], 1: [("a", False), ("b", True)], 2: [("a", False), ("b", False)]}


@pytest.mark.parametrize(
    ("leaves", "ignored", "condition"),
    [
        ({0}, (), "a"),
        ({1}, (), "not a and b"),
        ({0, 1}, (), "a or b"),
        ({0, 2}, (), "a or not b"),
        ({0, 1, 2}, (), "True"),
        (set(), (), "False"),
        ({0, 1}, {2}, "True"),
        ({1}, {2}, "not a"),
        ({1}, {0}, "b"),
        (set(), {0, 1, 2}, "False"),
    ],
)
def test_conditions_of_leaves(leaves: set[int], ignored: set[int], condition: str) -> None:
    assert tree_of(CHAIN).condition(leaves, ignored) == condition


def test_bounds_that_others_imply_are_left_out() -> None:
    steps = {0: "N < 4", 1: "N < 8", 2: "N < 16"}
    paths = {
        leaf: [*((steps[before], False) for before in range(leaf)), (text, True)]
        for leaf, text in steps.items()
    }
    paths[3] = [(text, False) for text in steps.values()]
    tree = tree_of(paths)
    assert tree.condition({1}) == "N >= 4 and N < 8"
    assert tree.condition({0, 1}) == "N < 8"
    assert tree.condition({2, 3}) == "N >= 8"
    assert tree.condition({3}) == "N >= 16"


@pytest.mark.parametrize("seed", range(40))
def test_conditions_hold_for_their_leaves_alone(seed: int) -> None:
    """Of trees of which every combination of answers is one leaf."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    names = "abcd"
    paths: dict[int, list[tuple[str, bool]]] = {}

    def grow(answers: list[tuple[str, bool]]) -> None:
        left = [name for name in names if name not in dict(answers)]
        if not left or (answers and generator.random() < 0.3):
            paths[len(paths)] = answers
            return
        name = generator.choice(left)
        grow([*answers, (name, True)])
        grow([*answers, (name, False)])

    grow([])
    leaves = {leaf for leaf in paths if generator.random() < 0.5}
    ignored = {leaf for leaf in paths if leaf not in leaves and generator.random() < 0.3}
    condition = tree_of(paths).condition(leaves, ignored)
    for values in itertools.product((True, False), repeat=len(names)):
        call = dict(zip(names, values, strict=True))
        (leaf,) = (at for at, path in paths.items() if all(call[n] is v for n, v in path))
        if leaf not in ignored:
            assert eval(condition, {}, call) is (leaf in leaves), condition  # noqa: S307


def test_long_conditions_are_several() -> None:
    paths = {}
    for at in range(60):
        answers = [(f"stride(x, {other}) % 16 == 0", False) for other in range(at)]
        paths[at] = [("wide", at % 2 == 0), *answers, (f"stride(x, {at}) % 16 == 0", True)]
    tree = tree_of(paths)
    leaves = [at for at in paths if at % 3]
    assert tree_of({0: [("N < 8", True)], 1: [("N < 8", False)]}).requirements([0]) == ["N < 8"]
    assert tree.requirements(paths) == []
    every = tree.requirements(leaves)
    assert len(every) > 1
    whole = tree.condition(leaves)
    for seed in range(200):
        generator = random.Random(seed)  # noqa: S311 - no secret
        values = {f"stride(x, {at})": generator.choice((1, 1, 1, 16)) for at in range(60)}
        values["wide"] = generator.choice((0, 1))
        assert all(evaluated(text, values) for text in every) == evaluated(whole, values)

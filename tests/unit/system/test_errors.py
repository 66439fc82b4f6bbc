"""What says the same of several places is said once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbuild.system.errors import Problem, grouped, in_groups, marked_source

HEAVY = "`torch/extension.h` pulls in all of Torch"


def doubts(count: int) -> list[Problem]:
    return [Problem(f"{n}.cpp", n + 1, "", HEAVY, "include less", "warning") for n in range(count)]


def told(*sentences: str) -> list[tuple[str, str]]:
    items = list(enumerate(sentences))
    found = grouped(items, lambda item: ("check", item[1], f"f:{item[0]}"))
    return [(one.first[1], one.note) for one in found]


@pytest.mark.parametrize(
    ("count", "note"),
    [
        (2, " (2 times: also 1.cpp:2)"),
        (3, " (3 times: also 1.cpp:2, 2.cpp:3)"),
        (41, " (41 times: also 1.cpp:2, 2.cpp:3 and 38 more; `-v` shows all)"),
    ],
)
def test_the_same_is_one_line_with_a_count_and_the_first_places(count: int, note: str) -> None:
    assert in_groups(doubts(count)) == [f"0.cpp:1: warning: {HEAVY}{note}\n  hint: include less"]


def test_sentences_that_differ_in_names_are_told_apart_while_they_are_few() -> None:
    few = told("imports `a`", "imports `b`", "imports `c`")
    assert few == [("imports `a`", ""), ("imports `b`", ""), ("imports `c`", "")]
    many = told("imports `a`", "imports `b`", "imports `c`", "imports `a`")
    assert many == [("imports `a`", " (4 of this kind: also f:1, f:2 and 1 more; `-v` shows all)")]


@pytest.mark.parametrize(
    ("source", "column", "length", "shown"),
    [
        ("", 1, 1, ()),
        ('name = "x"', 8, 3, ('name = "x"', "       ^^^")),
        ('\tname = "x"', 9, 3, ('name = "x"', "       ^^^")),
        ("a = '\x1b'  # \x07", 5, 3, (r"a = '\x1b'  # \x07", "    ^^^^^^")),
        ("  int x;", 0, 0, ("int x;",)),
    ],
)
def test_carets_are_below_what_is_wrong(
    source: str, column: int, length: int, shown: tuple[str, ...]
) -> None:
    assert marked_source(source, column, length) == shown


@pytest.mark.parametrize("column", [1, 40, 200, 380])
def test_long_lines_are_shortened_around_the_place(column: int) -> None:
    source = "".join(f"{n:04}" for n in range(100))
    line, carets = marked_source(source, column, 8)
    assert len(line) <= 76
    at = carets.index("^")
    assert line[at : at + 8] == source[column - 1 : column + 7]


def test_a_problem_shows_its_line() -> None:
    problem = Problem("build.toml", 3, "general.name", "is wrong", "a hint", column=8, length=3)
    assert str(replace(problem, source='name = "x"')).split("\n") == [
        "build.toml:3: general.name: is wrong",
        '    name = "x"',
        "           ^^^",
        "  hint: a hint",
    ]

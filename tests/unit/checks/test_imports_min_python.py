"""Syntax that the oldest supported Python does not have, found by a newer one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from kbuild.checks.base import Output
from kbuild.checks.imports import ImportsCheck

Make = Callable[..., Output]
needs_311 = pytest.mark.skipif(sys.version_info < (3, 11), reason="cannot be parsed here")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        pytest.param("try:\n    pass\nexcept* ValueError:\n    pass\n", 1, marks=needs_311),
        pytest.param("def f(\n    *args: *Ts,\n): ...\n", 2, marks=needs_311),
        pytest.param("y = 1\nx[*y]\n", 2, marks=needs_311),
        pytest.param("x[1, *y, 2]\n", 1, marks=needs_311),
    ],
)
def test_newer(noarch: Make, source: str, line: int) -> None:
    (found,) = ImportsCheck().run(noarch({"x.py": source}))
    assert (found.severity, found.where) == ("warning", f"x.py:{line}")
    assert "needs a newer Python than 3.10" in found.what
    assert found.hint


@pytest.mark.parametrize(
    "source",
    [
        "x[(*y,)]\nx[1, 2]\nx[(1, *y)]\n",
        "match x:\n    case 1: pass\n",
        "x[y := 1]\nz = {y := 1, 2}\nif (n := 1): pass\n",
        "class C:\n    x: int | None = None\ndef f(x: int | None) -> str | None: ...\n",
        "@a[0].b\ndef f(): ...\nfor x in *a, *b: pass\n",
        "with (open('a') as a, open('b') as b): pass\n",
        "def f(x, /, y: int, *args: int, **more: str) -> None: ...\n",
    ],
)
def test_old_enough(noarch: Make, source: str) -> None:
    assert list(ImportsCheck().run(noarch({"x.py": source}))) == []


@needs_311
def test_every_place_is_named(noarch: Make) -> None:
    source = "x[*y]\n\ntry:\n    pass\nexcept* ValueError:\n    pass\n"
    found = ImportsCheck().run(noarch({"x.py": source}))
    assert [finding.where for finding in found] == ["x.py:1", "x.py:3"]

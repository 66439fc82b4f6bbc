"""Syntax that the oldest supported Python does not have, found by a newer one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from kbuild.checks.base import Output
from kbuild.checks.imports import Imports

Make = Callable[..., Output]
FUTURE = "from __future__ import annotations\n"
needs_311 = pytest.mark.skipif(sys.version_info < (3, 11), reason="cannot be parsed here")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nmatch x:\n    case 1:\n        pass\n", 2),
        pytest.param("try:\n    pass\nexcept* ValueError:\n    pass\n", 1, marks=needs_311),
        pytest.param("def f(\n    *args: *Ts,\n): ...\n", 2, marks=needs_311),
        pytest.param("y = 1\nx[*y]\n", 2, marks=needs_311),
        pytest.param("x[1, *y, 2]\n", 1, marks=needs_311),
        ("x[y := 1]\n", 1),
        ("x = {y := 1, 2}\n", 1),
        ("def f(x: int | None = None): ...\n", 1),
        ("def f(x, *, y: 'str', z: list[int | str]): ...\n", 1),
        ("async def f() -> int | None: ...\n", 1),
        ("class C:\n    x: int | None = None\n", 2),
        ("x: int | None = None\n", 1),
        ("def f():\n    class C:\n        x: int | None\n", 3),
    ],
)
def test_newer(noarch: Make, source: str, line: int) -> None:
    (found,) = Imports().run(noarch({"x.py": source}))
    assert (found.severity, found.where) == ("warning", f"x.py:{line}")
    assert "needs a newer Python than 3.9" in found.what
    assert found.hint


@pytest.mark.parametrize(
    "source",
    [
        "x[(*y,)]\nx[1, 2]\nx[(1, *y)]\n",
        "x[(y := 1)]\nz = {(y := 1), 2}\nz = {( y := 1 )}\nif (n := 1): pass\n",
        f"{FUTURE}def f(x: int | None) -> str | None: ...\n",
        "def f(x: 'int | None'): ...\n",
        "def f():\n    x: int | None = None\n",
        "flags = a | b\ndef f(x=a | b): ...\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x: int | None\n",
        "@a[0].b\ndef f(): ...\nfor x in *a, *b: pass\n",
        "with (open('a') as a, open('b') as b): pass\n",
        "def f(x, /, y: int, *args: int, **more: str) -> None: ...\n",
    ],
)
def test_old_enough(noarch: Make, source: str) -> None:
    assert list(Imports().run(noarch({"x.py": source}))) == []


def test_every_place_is_named(noarch: Make) -> None:
    source = "def f(x: int | None): ...\n\ny[z := 1]\n"
    found = Imports().run(noarch({"x.py": source}))
    assert [finding.where for finding in found] == ["x.py:1", "x.py:3"]

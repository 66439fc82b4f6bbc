"""pytest finds all tests."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_pytest_enters_every_folder(pytestconfig: pytest.Config) -> None:
    """By default it leaves out folders called `build`, and with them the tests of that package."""
    folders = {
        part
        for path in (ROOT / "tests").rglob("test_*.py")
        for part in path.relative_to(ROOT).parts[:-1]
    }
    ignored = pytestconfig.getini("norecursedirs")
    assert "build" in folders
    assert [name for name in folders for pattern in ignored if fnmatch(name, pattern)] == []

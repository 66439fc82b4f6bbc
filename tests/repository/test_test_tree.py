"""The tests lie where somebody looks for them, and pytest finds all of them."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = {ROOT / "tests/unit": ROOT / "kbuild", ROOT / "tests/plugins": ROOT / "kbuild/plugins"}
MIRRORED = [(path, tree) for tree in TREES for path in sorted(tree.rglob("test_*.py"))]


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


@pytest.mark.parametrize(("path", "tree"), MIRRORED, ids=lambda path: path.stem)
def test_unit_tests_mirror_the_package(path: Path, tree: Path) -> None:
    """`tests/unit/PACKAGE/test_NAME*.py` tests `kbuild/PACKAGE/NAME.py`, or all of PACKAGE."""
    package = TREES[tree] / path.parent.relative_to(tree)
    names = {package.name} | {entry.stem for entry in package.iterdir() if entry.suffix == ".py"}
    names |= {entry.name for entry in package.iterdir() if entry.is_dir()}
    tested = path.stem.removeprefix("test_")
    assert any(tested == name or tested.startswith(f"{name}_") for name in names)

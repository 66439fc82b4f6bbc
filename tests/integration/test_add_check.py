"""The check of `docs/contributing/add-a-check.md`, added to a copy of kbuild."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, write_files
from tests.support.guide import files_of

TABLE = "tests/seeded/seeded_table.py"
JOINED = """
from tests.seeded.seeded_conflicts import CONFLICTS

CASES = (*CASES, *CONFLICTS)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files of the guide."""
    folder = tmp_path_factory.mktemp("kbuild-with-check")
    skipped = shutil.ignore_patterns("__pycache__", "build", ".kbuild", "gpu", "golden")
    for name in ("kbuild", "tests", "templates", "examples", "docs", "scripts"):
        ignored = skipped if name in {"tests", "examples"} else None
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    files = files_of("add-a-check.md")
    assert len(files) == 3
    write_files(folder, files)
    return folder


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: TID251 - another kbuild than the one under test
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_own_tests_pass(tree: Path) -> None:
    done = run(tree, "-m", "pytest", "-q", "tests/unit/checks/test_conflicts.py")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.compile
@pytest.mark.quick
def test_its_seeded_fault_is_asked_for_and_found(tree: Path) -> None:
    command = ("-m", "pytest", "-q", "tests/seeded", "-k", "merge or every_check")
    done = run(tree, *command)
    assert "test_every_check_has_a_fault_to_find" in done.stdout
    assert done.returncode == 1, done.stdout
    (tree / TABLE).write_text((tree / TABLE).read_text() + JOINED)
    done = run(tree, *command)
    assert "2 passed" in done.stdout, done.stdout


def test_the_reference_explains_it(tree: Path) -> None:
    assert run(tree, "scripts/generate_reference.py", "--check").returncode == 1
    done = run(tree, "scripts/generate_reference.py")
    assert done.returncode == 0, done.stderr
    page = (tree / "docs" / "reference" / "checks.md").read_text("utf-8")
    assert "Python files hold no markers of merge conflicts." in page

"""Names and docstrings of kbuild say what a value is, in the field's terms."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import measure_structure  # noqa: E402

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "kbuild").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_reads_well(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text("utf-8"))
    assert measure_structure.METAPHORS & measure_structure.names_in(tree) == set()
    texts = measure_structure.docstrings(tree)
    assert [text for text in texts if measure_structure.NO_SUBJECT.match(text)] == []


def test_what_is_not_allowed() -> None:
    tree = ast.parse('class Shop:\n    """Whether it is."""\n\n\ndef f(desk): ...\n')
    assert measure_structure.METAPHORS & measure_structure.names_in(tree) == {"shop", "desk"}
    texts = measure_structure.docstrings(tree)
    assert [bool(measure_structure.NO_SUBJECT.match(text)) for text in texts] == [True]

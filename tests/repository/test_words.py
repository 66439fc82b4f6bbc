"""Names and docstrings of kbuild say what a value is, in the field's terms."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import measure_structure  # noqa: E402


def test_every_module_reads_well() -> None:
    found = {}
    for path in sorted((ROOT / "kbuild").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        metaphors = measure_structure.METAPHORS & measure_structure.names_in(tree)
        texts = filter(measure_structure.NO_SUBJECT.match, measure_structure.docstrings(tree))
        if said := [*metaphors, *texts]:
            found[path.relative_to(ROOT).as_posix()] = said
    assert found == {}


def test_what_is_not_allowed() -> None:
    tree = ast.parse('class Shop:\n    """Whether it is."""\n\n\ndef f(desk): ...\n')
    assert measure_structure.METAPHORS & measure_structure.names_in(tree) == {"shop", "desk"}
    texts = measure_structure.docstrings(tree)
    assert [bool(measure_structure.NO_SUBJECT.match(text)) for text in texts] == [True]

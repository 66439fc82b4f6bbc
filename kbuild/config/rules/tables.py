"""Tuned tables of kernels in Python DSLs: they can be read, and mean something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.errors import ConfigError, Problem

_SHOWN = 5
"""Rows of one table that are named when they mean nothing."""


def tables(document: Document, context: Context) -> Iterator[Issue]:
    """Every `tuned/*.json` is a table, and its rows are of what the sections have."""
    foreign = document.in_dsls()
    if not foreign:
        return
    from kbuild.languages.spec import read_section
    from kbuild.languages.stale import stale
    from kbuild.languages.tablefile import FOLDER, parse_table

    if not context.tree.is_dir(FOLDER):
        return
    readings = [read_section(name, section) for name, section in foreign.items()]
    ops = [op for reading in readings for op in reading.ops]
    is_sound = not any(i.severity == "error" for reading in readings for i in reading.issues)
    for path in context.tree.walk(FOLDER):
        if not path.endswith(".json"):
            continue
        try:
            file = parse_table(context.tree.read_text(path), path)
        except ConfigError as error:
            yield from map(_issue, error.problems)
            continue
        # What follows from a section that is wrong says nothing of the table.
        yield from _few(path, stale(file, ops) if is_sound else ())


def _few(path: str, problems: Sequence[Problem]) -> Iterator[Issue]:
    yield from map(_issue, problems[:_SHOWN])
    if problems[_SHOWN:]:
        count = len(problems) - _SHOWN
        words = f"{count} more row{'s' * (count != 1)} mean nothing any more"
        yield Issue((), words, "`kbuild tune` measures again", "warning", path)


def _issue(problem: Problem) -> Issue:
    words = f"{problem.key}: {problem.message}" if problem.key else problem.message
    return Issue((), words, problem.hint, problem.severity, problem.file, problem.line)


RULES = (tables,)

"""`kbuild.toml`: a project's settings that only kbuild has, in the tables `build` and `allow`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.plan.project import KBUILD_FILE
from kbuild.project.config.display import display_path
from kbuild.project.config.issue import Issue, did_you_mean, toml_type
from kbuild.project.config.load import parse_build_file, read_build_file
from kbuild.project.config.locate import LineIndex, problem_at
from kbuild.project.variant import System
from kbuild.system.errors import ConfigError
from kbuild.system.sourcetree import SourceTree

_TABLES = {"build": ("systems",), "allow": None}
"""The tables with their keys; checks know the keys of `allow`."""
_WRITE = 'write `systems = ["aarch64-linux"]`'


def read_kbuild_file(
    tree: SourceTree, more: Callable[[Mapping[str, Any]], Iterator[Issue]] = lambda _: iter(())
) -> Mapping[str, Any]:
    """The tables of a project's `kbuild.toml`; empty without one. `more` finds further issues.

    Raises:
        ConfigError: with everything that is wrong with the file.
    """
    if not tree.is_file(KBUILD_FILE) and tree.fault(KBUILD_FILE) is None:
        return {}
    if not tree.read_bytes(KBUILD_FILE).strip():
        return {}
    text = read_build_file(tree, KBUILD_FILE)
    document = parse_build_file(tree, KBUILD_FILE, text)
    issues = [*_issues(document), *more(document)]
    if issues:
        lines, place = LineIndex(text), display_path(tree.root, KBUILD_FILE)
        raise ConfigError(sorted(problem_at(issue, lines, place) for issue in issues))
    return document


def systems_of_project(root: Path) -> frozenset[System]:
    """The systems of `build.systems`; errors of `read_kbuild_file`."""
    if not os.path.lexists(root / KBUILD_FILE):
        return frozenset()
    listed = read_kbuild_file(SourceTree(root)).get("build", {}).get("systems", ())
    return frozenset(map(System.parse, listed))


def _issues(document: Mapping[str, Any]) -> Iterator[Issue]:
    for key, table in document.items():
        if key not in _TABLES:
            guess = did_you_mean(key, _TABLES) or "allowed: `[allow]`, `[build]`"
            yield Issue((key,), "is not a table of this file", guess, is_about_key=True)
        elif not isinstance(table, dict):
            yield Issue((key,), f"is {toml_type(table)}, not a table", f"write `[{key}]`")
        elif known := _TABLES[key]:
            for name in table.keys() - {*known}:
                yield Issue((key, name), f"is not a key of `[{key}]`", _WRITE, is_about_key=True)
            yield from _system_issues(table.get("systems", []))


def _system_issues(listed: object) -> Iterator[Issue]:
    at = ("build", "systems")
    if not isinstance(listed, list):
        yield Issue(at, f"is {toml_type(listed)}, not a list of systems", _WRITE)
        return
    for number, text in enumerate(listed):
        try:
            System.parse(str(text))
        except ValueError:
            yield Issue((*at, number), f"`{text}` is not a system", _WRITE)

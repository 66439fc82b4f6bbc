"""`kbuild.toml`: a project's settings that only kbuild has.

```toml
[build]
systems = ["aarch64-linux"]  # built here as well, by a cross compiler

[allow]
ops = "why this check is wrong here"
```
"""

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

Document = Mapping[str, Any]
_BUILD, _SYSTEMS, _ALLOW = "build", "systems", "allow"
_TABLES = (_ALLOW, _BUILD)


def read_kbuild_file(
    tree: SourceTree, more_issues: Callable[[Document], Iterator[Issue]] = lambda _: iter(())
) -> Document:
    """The tables of a project's `kbuild.toml`; empty without one.

    Args:
        tree: the project's files.
        more_issues: finds what is wrong with tables that this module does not know.

    Raises:
        ConfigError: with everything that is wrong with the file.
    """
    if not tree.is_file(KBUILD_FILE) and tree.fault(KBUILD_FILE) is None:
        return {}
    if not tree.read_bytes(KBUILD_FILE).strip():
        return {}
    text = read_build_file(tree, KBUILD_FILE)
    document = parse_build_file(tree, KBUILD_FILE, text)
    issues = [*_issues(document), *more_issues(document)]
    if issues:
        lines, place = LineIndex(text), display_path(tree.root, KBUILD_FILE)
        raise ConfigError(sorted(problem_at(issue, lines, place) for issue in issues))
    return document


def systems_of_project(root: Path) -> frozenset[System]:
    """The systems of `build.systems`, which are built for beside this machine's.

    Raises:
        ConfigError: with everything that is wrong with the file.
    """
    if not os.path.lexists(root / KBUILD_FILE):
        return frozenset()
    listed = read_kbuild_file(SourceTree(root)).get(_BUILD, {}).get(_SYSTEMS, ())
    return frozenset(map(System.parse, listed))


def _issues(document: Document) -> Iterator[Issue]:
    for key in document.keys() - {*_TABLES}:
        known = ", ".join(f"`[{table}]`" for table in _TABLES)
        guess = did_you_mean(key, _TABLES) or f"allowed: {known}"
        yield Issue((key,), "is not a table of this file", guess, is_about_key=True)
    for name in _TABLES:
        if not isinstance(table := document.get(name, {}), dict):
            yield Issue((name,), f"is {toml_type(table)}, not a table", f"write `[{name}]`")
    build = document.get(_BUILD, {})
    if not isinstance(build, dict):
        return
    for key in build.keys() - {_SYSTEMS}:
        guess = did_you_mean(key, [_SYSTEMS]) or f"allowed: `{_SYSTEMS}`"
        yield Issue((_BUILD, key), "is not a key of `[build]`", guess, is_about_key=True)
    listed, hint = build.get(_SYSTEMS, []), 'write `systems = ["aarch64-linux"]`'
    if not isinstance(listed, list):
        yield Issue((_BUILD, _SYSTEMS), f"is {toml_type(listed)}, not a list of systems", hint)
        return
    for at, text in enumerate(listed):
        try:
            System.parse(str(text))
        except ValueError:
            yield Issue((_BUILD, _SYSTEMS, at), f"`{text}` is not a system", hint)

"""Rewriting an older `build.toml` to edition 5, with its comments and its order.

Writes exactly what `kbuild.project.config.load` does in memory when an older file is opened, and
proves it: a rewritten text is read back and must say the same. A file gets new lines, and is
otherwise the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import tomli

from kbuild.project.config.issue import Issue
from kbuild.project.config.load import MigratedFile, migrate, syntax_issue
from kbuild.project.config.locate import LineIndex, SourceSpan, problem_at, problem_in, source_line
from kbuild.project.config.model import EDITION
from kbuild.system.errors import ConfigError
from kbuild.system.untrusted import parse_toml

_DOTTED = re.compile(r"\s*(?:general\s*\.\s*)?")
_OBSTACLES = {("general", "edition"), ("general", "license")}


def update_text(text: str, file: str = "build.toml") -> str:
    """The text in edition 5; a text that is there already comes back as it is.

    Raises:
        ConfigError: the text is not TOML, its edition is not known, or what edition 5 requires
            can only be said by the author (a licence).
    """
    data = _parse(text, file)
    if not isinstance(data.get("general"), dict):
        raise _refusal([Issue(("general",), "is missing")], text, file)
    migrated = migrate(data)
    # Keys that older editions did not know are no obstacle: edition 5 knows them.
    obstacles = [issue for issue in migrated.issues if issue.path in _OBSTACLES]
    if obstacles:
        raise _refusal(obstacles, text, file)
    return text if migrated.edition == EDITION else _rewritten(text, data, migrated, file)


def _parse(text: str, file: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except RecursionError as error:
        raise _refusal([Issue((), "is nested too deeply")], text, file) from error
    except ValueError as error:
        raise _refusal([syntax_issue(text, error)], text, file) from error


def _rewritten(text: str, data: Mapping[str, Any], migrated: MigratedFile, file: str) -> str:
    updated = _with_new_lines(text, data, migrated.data)
    with suppress(ValueError):  # the new lines do not fit, such as below `general = { ... }`
        if tomli.loads(updated) == migrated.data:
            return updated
    hint = f"add `edition = {EDITION}` to `[general]` by hand"
    raise _refusal(
        [Issue(("general",), "is written in a way that kbuild cannot extend", hint)], text, file
    )


def _with_new_lines(text: str, data: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    lines = LineIndex(text)
    anchors = (("general", key) for key in ("version", "name") if key in data["general"])
    number = lines.of(next(anchors, ("general",)))
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = text.split(newline)
    lead = _DOTTED.match(rows[number - 1])
    indent = lead.group() if lead else ""
    general = target["general"]
    new = [key for key in ("version", "edition") if key in general.keys() - data["general"].keys()]
    rows[number:number] = [f"{indent}{key} = {general[key]}" for key in new]
    for table in target:
        if table not in data:
            while rows and not rows[-1].strip():
                rows.pop()
            rows += ["", f"[{table}]", ""]
    return newline.join(rows)


def _refusal(issues: Iterable[Issue], text: str, file: str) -> ConfigError:
    issues = tuple(issues)
    if not any(issue.path for issue in issues):
        spans = (SourceSpan(issue.line, source=source_line(text, issue.line)) for issue in issues)
        return ConfigError(list(map(problem_in, issues, spans, [file] * len(issues))))
    lines = LineIndex(text)
    return ConfigError([problem_at(issue, lines, file) for issue in issues])

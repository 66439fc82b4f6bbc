"""Rewriting an older `build.toml` to edition 5, with its comments and its order.

Writes exactly what `kbuild.project.config.load` does in memory when an older file is opened, and
proves it: a rewritten text is read back and must say the same. Usual files get new lines and are
otherwise the same bytes; unusual ones (`general` as an inline table, say) go through tomlkit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    for rewrite in (_with_new_lines, _with_tomlkit):
        candidate = rewrite(text, data, migrated.data)
        if candidate is not None and _says(candidate, migrated.data):
            return candidate
    hint = f"add `edition = {EDITION}` to `[general]` by hand"
    raise _refusal(
        [Issue(("general",), "is written in a way that kbuild cannot extend", hint)], text, file
    )


def _says(text: str, data: Mapping[str, Any]) -> bool:
    try:
        return tomli.loads(text) == data
    except ValueError:
        return False


def _new_pairs(data: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, int]:
    """The keys that `[general]` gains, in the order in which they are written."""
    general = target["general"]
    return {
        key: general[key]
        for key in ("version", "edition")
        if key in general.keys() - data["general"].keys()
    }


def _with_new_lines(text: str, data: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    lines = LineIndex(text)
    anchors = (("general", key) for key in ("version", "name") if key in data["general"])
    number = lines.of(next(anchors, ("general",)))
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = text.split(newline)
    lead = _DOTTED.match(rows[number - 1])
    indent = lead.group() if lead else ""
    rows[number:number] = [f"{indent}{k} = {v}" for k, v in _new_pairs(data, target).items()]
    for table in target:
        if table not in data:
            rows = [*_without_blank_end(rows), "", f"[{table}]", ""]
    return newline.join(rows)


def _without_blank_end(rows: list[str]) -> list[str]:
    while rows and not rows[-1].strip():
        rows = rows[:-1]
    return rows


def _with_tomlkit(text: str, data: Mapping[str, Any], target: Mapping[str, Any]) -> str | None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        for key, value in _new_pairs(data, target).items():
            document["general"][key] = value
        for table in target:
            if table not in data:
                document[table] = tomlkit.table()
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, RecursionError):
        return None


def _refusal(issues: Iterable[Issue], text: str, file: str) -> ConfigError:
    issues = tuple(issues)
    if not any(issue.path for issue in issues):
        spans = (SourceSpan(issue.line, source=source_line(text, issue.line)) for issue in issues)
        return ConfigError(list(map(problem_in, issues, spans, [file] * len(issues))))
    lines = LineIndex(text)
    return ConfigError([problem_at(issue, lines, file) for issue in issues])

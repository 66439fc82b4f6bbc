"""The ops that a project's `build.toml` describes, read without building anything."""

from __future__ import annotations

from pathlib import Path

from kbuild.config.issue import dotted
from kbuild.config.locate import Lines
from kbuild.errors import ConfigError, Problem, UsageError
from kbuild.languages.spec import DIALECTS, OpSpec, read_section
from kbuild.untrusted import parse_toml, reason_of

_FILE = "build.toml"


def ops_of(root: Path) -> tuple[OpSpec, ...]:
    """Every op of the kernels in Python DSLs.

    Raises:
        ConfigError: with everything that is wrong with these sections.
        UsageError: there are none.
    """
    try:
        text = (root / _FILE).read_text("utf-8")
        kernels = parse_toml(text).get("kernel", {})
    except OSError as error:
        raise UsageError(f"`{root / _FILE}`: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem(_FILE, 0, "", f"is no TOML: {reason_of(error)}")]) from error
    sections = {
        name: section
        for name, section in kernels.items()
        if isinstance(section, dict) and section.get("language") in DIALECTS
    }
    readings = [read_section(name, section) for name, section in sections.items()]
    lines = Lines(text)
    problems = [
        Problem(_FILE, lines.of(issue.path), dotted(issue.path), issue.message, issue.hint)
        for reading in readings
        for issue in reading.issues
        if issue.severity == "error"
    ]
    if problems:
        raise ConfigError(problems)
    ops = tuple(op for reading in readings for op in reading.ops)
    if not ops:
        hint = "`language` in a `[kernel.*]` section, see docs/explanation/languages.md"
        raise UsageError(f"`{root / _FILE}` has no kernel in a Python DSL", hint=hint)
    return ops

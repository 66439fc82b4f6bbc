"""Checks that an author overrules: for one command with `--allow`, for a project in `kbuild.toml`.

```toml
[allow]
ops = "the names come from a table that is made while the package is imported"
```

An overruled check still looks. Its errors become warnings that name the reason, and the variant's
metadata keeps which checks found something and were overruled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kbuild.checks.base import CHECKS, SOURCE_CHECKS, Check, Finding
from kbuild.plan.project import read_kbuild_file
from kbuild.project.config.issue import Issue, one_of, printable, toml_type
from kbuild.system.errors import UsageError
from kbuild.system.file_state import stat_state
from kbuild.system.sourcetree import SourceTree

COMMAND_LINE_REASON = "--allow on the command line"
"""The reason of a check that is overruled for one command."""
_TABLE = "allow"
_PROTECTS = "it protects the users of the kernel"


def overrule(findings: Iterable[Finding], allowed: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings, errors of overruled checks as warnings that name the reason."""
    return tuple(
        replace(finding, severity="warning", overruled=allowed[finding.check])
        if finding.severity == "error" and finding.check in allowed
        else finding
        for finding in findings
    )


def overruled_checks(findings: Iterable[Finding]) -> dict[str, str]:
    """The checks that found something and were overruled: reason by check, in name order."""
    reasons = {finding.check: finding.overruled for finding in findings if finding.overruled}
    return dict(sorted(reasons.items()))


def can_be_overruled(check: str) -> bool:
    """False for a check that protects those who load the kernel, and for no check at all."""
    definition = _find_check(check)
    return check in SOURCE_CHECKS or (definition is not None and not definition.protects)


def is_overruling_offered(check: str) -> bool:
    """True when it may make sense to overrule the check: it may be wrong."""
    definition = _find_check(check)
    return can_be_overruled(check) and not (definition is not None and definition.is_certain)


def _find_check(check: str) -> Check | None:
    """The check of that name, plug-ins asked last."""
    own = next((known for known in CHECKS.load() if known.name == check), None)
    return own or next((c for c in CHECKS.load(plugins=True) if c.name == check), None)


def allowed_checks(tree: SourceTree, names: Iterable[str] = ()) -> dict[str, str]:
    """Reason by overruled check: those of the project's `kbuild.toml`, and those that were given.

    Raises:
        ConfigError: with everything that is wrong with `kbuild.toml`.
        UsageError: a name that was given is no check's, or such a check cannot be overruled.
    """
    document = read_kbuild_file(tree, lambda document: _issues(document, tree))
    return checks_allowed_by_option(names) | dict(sorted(document.get(_TABLE, {}).items()))


def checks_allowed_by_option(names: Iterable[str]) -> dict[str, str]:
    """The checks that `--allow` names; see `allowed_checks`."""
    for name in names:
        if (reason := _rejection(name)) is not None:
            raise UsageError(f"--allow: {reason[0]}", hint=reason[1])
    return dict.fromkeys(names, COMMAND_LINE_REASON)


def _issues(document: Mapping[str, Any], tree: SourceTree) -> Iterator[Issue]:
    table = document.get(_TABLE, {})
    for name, reason in table.items() if isinstance(table, dict) else ():
        if (refusal := _rejection(name, tree)) is not None:
            yield Issue((_TABLE, name), *refusal, is_about_key=True)
        elif not isinstance(reason, str):
            message = f"is {toml_type(reason)}, not a reason"
            yield Issue((_TABLE, name), message, f'write `{name} = "why it is wrong here"`')
        elif not reason.strip() or not reason.isprintable():
            message = "has no reason" if not reason.strip() else "has a reason of several lines"
            yield Issue((_TABLE, name), message, "say in one line why the check is wrong here")


def _rejection(name: str, tree: SourceTree | None = None) -> tuple[str, str] | None:
    """The reason that a check is not overruled, and the hint; None when it is."""
    if can_be_overruled(name):
        return None
    shown = printable(name)
    if _find_check(name) is not None:
        hint = "correct what it finds, or leave the variant out; no option overrules this check"
        return f"`{shown}` cannot be overruled: {_PROTECTS}", hint
    if tree is not None:  # installing a plug-in may add the check
        folders = (folder for folder in sys.path if folder.startswith("/"))
        tree.observed.update({folder: stat_state(folder) for folder in folders})
    known = [*SOURCE_CHECKS, *(check.name for check in CHECKS.load(plugins=True))]
    return f"there is no check `{shown}`", one_of(name, filter(can_be_overruled, known))

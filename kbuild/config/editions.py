"""Which edition a `build.toml` is written in, and the way up to edition 5.

Editions 3 and 4 have no `edition` key. A file without one is edition 4, unless it lacks something
that only edition 3 did without: a version, or a framework table (which then meant Python only).
A file is never taken for edition 3 because something *else* in it is wrong: a misspelt `[torch]`
must not turn a compiled kernel into a Python-only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kbuild.config.issue import Issue, KeyPath
from kbuild.config.model import EDITION, BuildFile
from kbuild.config.suggest import toml_type

SINCE: Mapping[KeyPath, int] = {
    ("general", "edition"): 5,
    ("general", "source"): 4,
    ("general", "kernel-depends"): 5,
    ("general", "tpu"): 5,
    ("torch", "stable-abi"): 4,
    ("torch", "cxx-flags"): 4,
    ("torch-noarch",): 4,
}
"""The first edition that knows a table or key; all others are in every edition."""

_OLDEST = 3
_EDITION_3_TABLES = {"general", "kernel", "torch", "tvm-ffi"}
_PATH: KeyPath = ("general", "edition")
_ADVICE = "`kbuild update-build` rewrites the file to edition 5 and keeps its comments"


@dataclass(frozen=True)
class Migrated:
    """A file's content in edition 5 terms."""

    edition: int
    """Edition that the file is written in."""
    data: Mapping[str, Any]
    issues: tuple[Issue, ...] = ()
    readable: bool = True
    """False when the edition is newer than this kbuild, so that no rule can judge the file."""


def migrate(data: Mapping[str, Any]) -> Migrated:
    """Convert upward, one edition after the other."""
    general = data.get("general")
    if not isinstance(general, dict):
        return Migrated(EDITION, data)
    if "edition" in general:
        return _numbered(data, general["edition"])
    if _is_edition_3(data, general):
        return _from_3(data)
    return _from_4(data)


def _numbered(data: Mapping[str, Any], edition: Any) -> Migrated:
    if type(edition) is not int:
        issue = Issue(_PATH, f"must be the integer {EDITION}, not {toml_type(edition)}")
        return Migrated(EDITION, data, (replace(issue, hint=f"write `edition = {EDITION}`"),))
    if edition == EDITION:
        return Migrated(EDITION, data)
    if edition > EDITION:
        message = f"edition {edition} is newer than this kbuild, which reads up to {EDITION}"
        issue = Issue(_PATH, message, "upgrade kbuild")
        return Migrated(edition, data, (issue,), readable=False)
    return Migrated(EDITION, data, (_too_old(edition),))


def _too_old(edition: int) -> Issue:
    if edition in {3, 4}:
        hint = "remove the line, then run `kbuild update-build`"
        return Issue(_PATH, f"edition {edition} files do not have an `edition` key", hint)
    if edition in {1, 2}:
        hint = (
            f"rewrite the file for edition {EDITION}: docs/reference/build-toml.md lists every key"
        )
        return Issue(_PATH, f"edition {edition} is no longer read by any tool", hint)
    return Issue(_PATH, f"there is no edition {edition}", f"write `edition = {EDITION}`")


def _is_edition_3(data: Mapping[str, Any], general: Mapping[str, Any]) -> bool:
    if any(_has(data, path) for path, since in SINCE.items() if since > _OLDEST):
        return False
    unversioned = "version" not in general
    python_only = not any(key in data for key in BuildFile.frameworks) and not data.get("kernel")
    return set(data) <= _EDITION_3_TABLES and (unversioned or python_only)


def _has(data: Any, path: KeyPath) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _from_3(data: Mapping[str, Any]) -> Migrated:
    general = {"version": 1} | data["general"]
    framed = any(key in data for key in BuildFile.frameworks)
    # Compiled kernels need a framework that only the author knows.
    framework: dict[str, Any] = {} if framed or data.get("kernel") else {"torch-noarch": {}}
    above = _from_4({**data, "general": general, **framework})
    issues = [_advice(3), *(issue for issue in above.issues if issue.severity == "error")]
    if "license" not in general:
        issues.append(_license_missing())
    return Migrated(3, above.data, tuple(issues))


def _from_4(data: Mapping[str, Any]) -> Migrated:
    general = {**data["general"], "edition": EDITION}
    issues = (_advice(4), *_too_new(data))
    return Migrated(4, {**data, "general": general}, issues)


def _advice(edition: int) -> Issue:
    return Issue(("general",), f"this is an edition {edition} file", _ADVICE, "warning")


def _license_missing() -> Issue:
    message = "is missing; edition 3 did without it, edition 5 does not"
    return Issue(("general", "license"), message, 'write the SPDX name, e.g. `license = "MIT"`')


def _too_new(data: Mapping[str, Any]) -> Iterator[Issue]:
    hint = f"add `edition = {EDITION}` to `[general]`"
    for path, since in SINCE.items():
        if since == EDITION and _has(data, path):
            yield Issue(path, f"is known since edition {EDITION}, and this file has none", hint)
    torch = data.get("torch")
    if isinstance(torch, dict) and isinstance(torch.get("stable-abi"), dict):
        message = f"may be a table since edition {EDITION}, and this file has none"
        yield Issue(("torch", "stable-abi"), message, hint)

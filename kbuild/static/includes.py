"""Checks that every `#include` of sources that nothing here compiles leads to a file.

And the result of checking one variant's sources.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from kbuild.backends.base import IncludeCheck
from kbuild.checks.base import Finding
from kbuild.errors import KbuildError
from kbuild.frameworks import FRAMEWORKS
from kbuild.plan import BINDING, Component, VariantPlan
from kbuild.sources.cxx import read_cxx
from kbuild.sources.includes import IncludeLine, resolve_include
from kbuild.sourcetree import SourceTree

INCLUDES_CHECK = "includes"


def check_includes(
    plan: VariantPlan, tree: SourceTree, check: IncludeCheck
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The files that were read, and a finding for each include that leads nowhere.

    An error, but a warning where a condition may leave the line out. What a framework's or the
    system's headers are called is left alone.
    """
    files: dict[str, None] = {}
    findings: dict[Finding, None] = {}
    framework = FRAMEWORKS.get(plan.framework)
    provided = (*check.generated, *framework.support_files)
    for part in plan.components:
        root = (framework.package_root,) if part.name == BINDING else ()
        folders = (*root, *part.include)
        for path, include in _unresolved(part, folders, tree, check, files):
            foreign = include.name.partition("/")[0] in framework.header_folders
            if include.is_quoted and include.name not in provided and not foreign:
                findings[_missing_include(path, include, folders)] = None
    return tuple(files), tuple(findings)


def _unresolved(
    part: Component,
    folders: tuple[str, ...],
    tree: SourceTree,
    check: IncludeCheck,
    files: dict[str, None],
) -> Iterator[tuple[str, IncludeLine]]:
    """Includes that lead nowhere, in what the component's files read; adds those files."""
    waiting = [source.path for source in part.sources]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop(0)
        if path in seen or PurePosixPath(path).suffix not in check.suffixes:
            continue
        seen.add(path)
        files[path] = None
        for include in read_cxx(tree.read_text(path)).includes:
            if include.is_next:
                continue
            targets = resolve_include(tree, include.name, (posixpath.dirname(path), *folders))
            waiting.extend(targets)
            if not targets:
                yield path, include


def _missing_include(path: str, include: IncludeLine, folders: tuple[str, ...]) -> Finding:
    looked = ", ".join(f"`{folder}`" for folder in (posixpath.dirname(path) or ".", *folders))
    return Finding(
        INCLUDES_CHECK,
        "warning" if include.is_conditional else "error",
        f"{path}:{include.line}",
        f"`{include.name}` is not found",
        f"looked in {looked}; `include` of the section in build.toml names more folders",
    )


SourceState = Literal["ok", "broken", "unchecked"]


@dataclass(frozen=True)
class SourceVerdict:
    """The outcome for one variant."""

    variant: str
    proved: str
    """What was looked at and how, in words; empty when nothing could be."""
    unproved: str
    """What only a build can tell."""
    findings: tuple[Finding, ...] = ()
    units: int = 0
    """Units whose types were checked."""
    remembered: int = 0
    """Those of them for which no compiler was started."""
    error: KbuildError | None = None
    """Why nothing could be checked."""

    @property
    def state(self) -> SourceState:
        """`broken` with an error among the findings, `unchecked` when nothing could be said."""
        if self.error is not None:
            return "unchecked"
        broken = any(finding.severity == "error" for finding in self.findings)
        return "broken" if broken else "ok"

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "state": self.state,
            "proved": self.proved,
            "unproved": self.unproved,
            "units": self.units,
            "remembered": self.remembered,
            "findings": [finding.to_json() for finding in self.findings],
            "error": self.error.to_json() if self.error else None,
        }

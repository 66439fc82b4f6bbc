"""What can be judged on a kernel's sources, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from kbuild.filestate import Look, unchanged
from kbuild.frameworks import FRAMEWORKS
from kbuild.matrix.selection import variants
from kbuild.pipeline.bindings import binding_findings, left_out_findings
from kbuild.plan import VariantPlan
from kbuild.project import Project
from kbuild.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.checks import Finding


def python_findings(
    project: Project, frameworks: Iterable[str] = (), wants: Callable[[str], bool] = lambda _: True
) -> tuple[Finding, ...]:
    """Findings on ops and imports; `where` is relative to the project.

    Args:
        project: whose packages are read.
        frameworks: by name; without any, all that the project is built for.
        wants: whether the check of a name is to be asked.
    """
    from kbuild.checks.imports import check_imports_source
    from kbuild.checks.ops import check_ops_source

    checks = {"ops": check_ops_source, "imports": check_imports_source}
    names = tuple(frameworks) or tuple(choice.variant.framework for choice in variants(project))
    roots = dict.fromkeys(FRAMEWORKS.get(name).package_root for name in names)
    return tuple(
        replace(finding, where=f"{folder}/{finding.where}")
        for folder in (f"{root}/{project.python_name}" for root in roots)
        for check in (checks[name] for name in checks if wants(name))
        for finding in check(project.root / folder, project.python_name)
    )


Judged = tuple[Mapping[str, Look], "tuple[Finding, ...]"]
"""What was looked at, and what was found."""


@dataclass
class SourceJudge:
    """Findings on a project's sources by variant; asked for once while the files stay as they are.

    Safe to use from several threads.
    """

    project: Project
    _known: dict[tuple[object, ...], Judged] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def findings(self, made: VariantPlan) -> tuple[Finding, ...]:
        """Everything that the sources of one variant show; `where` is relative to the project."""
        kind = (made.framework, made.backend)
        parts = tuple(part.name for part in made.components)
        on_files = self._remembered(kind, partial(self._on_files, made))
        on_left_out = partial(left_out_findings, self.project, made)
        return (*on_files, *self._remembered((*kind, parts, made.notes), on_left_out))

    def _remembered(
        self, key: tuple[object, ...], ask: Callable[[SourceTree], tuple[Finding, ...]]
    ) -> tuple[Finding, ...]:
        with self._lock:
            known = self._known.get(key)
            if known is None or not unchanged(self.project.root, known[0]):
                tree = SourceTree(self.project.root)
                found = ask(tree)
                known = self._known[key] = (tree.observed, found)
        return known[1]

    def _on_files(self, made: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
        package = f"{FRAMEWORKS.get(made.framework).package_root}/{self.project.python_name}"
        for path in tree.walk(package):
            tree.is_file(path)  # remembers how it looks
        on_python = python_findings(self.project, (made.framework,))
        return (*on_python, *binding_findings(self.project, (made.backend,), tree))

"""What can be judged on a kernel's Python sources, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kbuild.frameworks import FRAMEWORKS
from kbuild.matrix.selection import variants
from kbuild.project import Project

if TYPE_CHECKING:
    from kbuild.checks import Finding


def python_findings(project: Project, frameworks: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Findings on ops and imports; `where` is relative to the project.

    Args:
        project: whose packages are read.
        frameworks: by name; without any, all that the project is built for.
    """
    from kbuild.checks.imports import check_imports_source
    from kbuild.checks.ops import check_ops_source

    names = tuple(frameworks) or tuple(choice.variant.framework for choice in variants(project))
    roots = dict.fromkeys(FRAMEWORKS.get(name).package_root for name in names)
    return tuple(
        replace(finding, where=f"{folder}/{finding.where}")
        for folder in (f"{root}/{project.python_name}" for root in roots)
        for check in (check_ops_source, check_imports_source)
        for finding in check(project.root / folder, project.python_name)
    )

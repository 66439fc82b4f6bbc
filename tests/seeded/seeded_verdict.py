"""What kbuild finds in a case's folder, by the same ways as its commands."""

from __future__ import annotations

import sys
from pathlib import Path

from kbuild.checks import CHECKS, CheckLimits, Finding, Output
from kbuild.pipeline.source_checks import flag_findings, pointer_findings, python_findings
from kbuild.plan.project import open_project
from kbuild.project.variant import Variant
from tests.seeded.seeded_recipe import Case


def findings_in(
    folder: Path, limits: CheckLimits | None = None, *, load: bool = False
) -> list[Finding]:
    """Errors and warnings on a variant's folder or on a project's sources.

    Args:
        folder: a variant's, or one with a `build.toml`.
        limits: that somebody chose.
        load: whether the checks run that start this Python.
    """
    if (folder / "build.toml").is_file():
        found = _of_sources(folder)
    else:
        variant, asked = Variant.parse(folder.name), limits or CheckLimits()
        python = Path(sys.executable) if load else None
        output = Output(folder, variant, python, asked=asked)
        checks = [check for check in CHECKS if load or not check.slow]
        found = [f for check in checks if check.applies(output) for f in check.run(output)]
    return [finding for finding in found if finding.severity != "info"]


def is_found(case: Case, findings: list[Finding]) -> bool:
    """True when the check that should find it says what is wrong."""
    return any(
        finding.check == case.check and case.word in f"{finding.where} {finding.what}"
        for finding in findings
    )


def strangers(case: Case, findings: list[Finding]) -> list[Finding]:
    """Findings that have nothing to do with what is wrong."""
    return [finding for finding in findings if finding.check not in {case.check, *case.also}]


def _of_sources(folder: Path) -> list[Finding]:
    project = open_project(folder)
    backends = project.file.general.backends
    on_sources = (*flag_findings(project, backends, {}), *pointer_findings(project, backends))
    return [*python_findings(project), *on_sources]

"""Asks the `kernels` client, in another process, which variants it can load on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.checks.probe_process import run_probe
from kbuild.system.processes import Runner


@dataclass(frozen=True)
class VariantCompatibility:
    """The client's answer about some variants of one kernel."""

    chosen: str | None = None
    """The variant that the client would load."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason for each variant that the client cannot load."""
    unknown: str = ""
    """Reason why the client could not be asked; empty if it was."""


def check_compatibility(
    variants: Sequence[str], python: Path, runner: Runner
) -> VariantCompatibility:
    """Ask the client of an interpreter about variants of one kernel."""
    answer = run_probe(runner, python, "fit_probe", *variants)
    if answer.state != "ok":
        reason = answer.reason.partition("\n")[0]
        return VariantCompatibility(unknown=f"the kernels client cannot be asked: {reason}")
    return VariantCompatibility(answer.facts["chosen"], answer.facts["refused"])

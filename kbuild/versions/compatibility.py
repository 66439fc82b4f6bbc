"""Asks the `kernels` client, in another process, which variants it can load on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.checks.probe_process import run_probe
from kbuild.runtime.processes import Runner

_VERSION_SEPARATOR = "--"


@dataclass(frozen=True)
class VariantCompatibility:
    """What the client says of a version's variants."""

    chosen: str | None = None
    """The one that it would load."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why not, by variant."""
    unknown: str = ""
    """Why it could not be asked; empty when it was."""

    def label(self, variant: str) -> str:
        """What there is to say of a variant."""
        if self.unknown:
            return "?"
        if variant == self.chosen:
            return "loaded here"
        return self.refused.get(variant, "fits")


def check_compatibility(
    versions: Sequence[Sequence[str]], python: Path, runner: Runner
) -> tuple[VariantCompatibility, ...]:
    """Ask the client of an interpreter about the variants of some versions, in one go."""
    if not any(versions):
        return tuple(VariantCompatibility() for _ in versions)
    names = [name for variants in versions for name in (_VERSION_SEPARATOR, *variants)][1:]
    answer = run_probe(runner, python, "fit_probe", *names)
    if answer.state != "ok":
        reason = answer.reason.partition("\n")[0]
        unknown = VariantCompatibility(unknown=f"the kernels client cannot be asked: {reason}")
        return tuple(unknown for _ in versions)
    return tuple(
        VariantCompatibility(group["chosen"], group["refused"]) for group in answer.facts["groups"]
    )

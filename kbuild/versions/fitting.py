"""Which variants fit this machine: the `kernels` client decides, in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.checks.readers.probing import ask
from kbuild.run import Runner

_SEPARATOR = "--"


@dataclass(frozen=True)
class Fitting:
    """What the client says of a version's variants."""

    chosen: str | None = None
    """The one that it would load."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why not, by variant."""
    unknown: str = ""
    """Why it could not be asked; empty when it was."""

    def word(self, variant: str) -> str:
        """What there is to say of a variant."""
        if self.unknown:
            return "?"
        if variant == self.chosen:
            return "loaded here"
        return self.refused.get(variant, "fits")


def fittings(
    versions: Sequence[Sequence[str]], python: Path, runner: Runner
) -> tuple[Fitting, ...]:
    """Ask the client of an interpreter about the variants of some versions, in one go."""
    if not any(versions):
        return tuple(Fitting() for _ in versions)
    names = [name for variants in versions for name in (_SEPARATOR, *variants)][1:]
    answer = ask(runner, python, "fit_probe", *names)
    if answer.state != "ok":
        reason = answer.reason.partition("\n")[0]
        unknown = Fitting(unknown=f"the kernels client cannot be asked: {reason}")
        return tuple(unknown for _ in versions)
    return tuple(Fitting(told["chosen"], told["refused"]) for told in answer.facts["groups"])

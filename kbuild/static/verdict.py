"""What was proved of one variant's sources, and what was not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kbuild.checks.base import Finding
from kbuild.errors import KbuildError

State = Literal["ok", "broken", "unchecked"]


@dataclass(frozen=True)
class Verdict:
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
    def state(self) -> State:
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

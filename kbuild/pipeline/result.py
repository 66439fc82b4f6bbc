"""The outcome of a build for one variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.system.errors import KbuildError

if TYPE_CHECKING:
    from kbuild.checks import Finding
    from kbuild.dsl.image_rows import ImageRow

BuildStatus = Literal[
    "built",
    "up-to-date",  # its inputs are those of the last build
    "skipped",  # this machine cannot build it
    "failed",
    "incomplete",  # the time budget was used up
]


@dataclass(frozen=True)
class BuildResult:
    """The outcome for one variant."""

    variant: str
    status: BuildStatus
    reason: str = ""
    path: Path | None = None
    seconds: float = 0.0
    steps: int = 0
    """Build steps that ran."""
    objects: int = 0
    from_cache: int = 0
    """Number of `objects` that came from the cache."""
    findings: tuple[Finding, ...] = ()
    images: tuple[ImageRow, ...] = ()
    """Images of the kernels in DSLs; none for a variant that was up to date."""
    not_run: tuple[str, ...] = ()
    """Checks that need a machine of the variant's processor, and had none."""
    overruled: Mapping[str, str] = field(default_factory=dict)
    """Reason by overruled check that found errors."""
    error: KbuildError | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "status": self.status,
            "reason": self.reason,
            "path": str(self.path) if self.path else None,
            "seconds": round(self.seconds, 3),
            "steps": self.steps,
            "objects": self.objects,
            "from_cache": self.from_cache,
            "findings": [finding.to_json() for finding in self.findings],
            "images": [asdict(row) for row in self.images],
            "overruled": dict(self.overruled),
            "not_run": list(self.not_run),
            "error": self.error.to_json() if self.error else None,
        }

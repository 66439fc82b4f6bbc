"""What became of one variant of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.errors import KbuildError

if TYPE_CHECKING:
    from kbuild.build.images import ImageRow
    from kbuild.checks import Finding

Status = Literal["built", "up-to-date", "skipped", "failed", "incomplete"]


@dataclass(frozen=True)
class Built:
    """What became of one variant."""

    variant: str
    status: Status
    reason: str = ""
    path: Path | None = None
    seconds: float = 0.0
    units: int = 0
    """Build steps that ran."""
    objects: int = 0
    """Objects that were made."""
    from_cache: int = 0
    """Those of them that the object cache had."""
    findings: tuple[Finding, ...] = ()
    images: tuple[ImageRow, ...] = ()
    """Images of the kernels in DSLs; of a variant that was up to date, none."""
    provenance: tuple[Path, ...] = ()
    """The statement and the list of ingredients, where they were asked for."""
    overruled: Mapping[str, str] = field(default_factory=dict)
    """Checks that found errors which are overruled, with reasons."""
    error: KbuildError | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "status": self.status,
            "reason": self.reason,
            "path": str(self.path) if self.path else None,
            "seconds": round(self.seconds, 3),
            "units": self.units,
            "objects": self.objects,
            "from_cache": self.from_cache,
            "findings": [finding.to_json() for finding in self.findings],
            **({"images": [asdict(row) for row in self.images]} if self.images else {}),
            "overruled": dict(self.overruled),
            "provenance": [str(path) for path in self.provenance],
            "error": self.error.to_json() if self.error else None,
        }

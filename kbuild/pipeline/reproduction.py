"""What came of building one variant again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kbuild.comparison import Difference
from kbuild.errors import KbuildError

State = Literal["same", "differs", "built", "up-to-date", "skipped", "failed", "incomplete"]


@dataclass(frozen=True)
class Reproduction:
    """One variant, built before and built again."""

    variant: str
    status: State
    path: Path
    """The variant directory that was compared with."""
    reason: str = ""
    """Why it was not built again."""
    seconds: float = 0.0
    files: int = 0
    """Files of the variant that was built again."""
    metadata: str = ""
    """SHA-256 of its `metadata.json`, which carries the digests of all others."""
    differences: tuple[Difference, ...] = ()
    error: KbuildError | None = None

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "variant": self.variant,
            "status": self.status,
            "path": str(self.path),
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "files": self.files,
            "metadata": self.metadata,
            "differences": [difference.to_json() for difference in self.differences],
            "error": self.error.to_json() if self.error else None,
        }

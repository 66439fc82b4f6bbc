"""What a build is asked for, the services that it may use, and the result for each variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.errors import KbuildError
from kbuild.identity import Identity
from kbuild.runtime.processes import Runner
from kbuild.selection import Selection
from kbuild.ui import Ui

if TYPE_CHECKING:
    from kbuild.build.unit_log import ImageRow
    from kbuild.checks import Finding


@dataclass(frozen=True)
class Services:
    """Every way in which the pipeline touches the world."""

    runner: Runner
    ui: Ui
    cache: Path
    """kbuild's cache folder."""


@dataclass(frozen=True)
class BuildOptions:
    """What `kbuild build` was asked for."""

    selection: Selection = field(default_factory=Selection)
    output: Path | None = None
    """Folder that gets the variant directories; `build/` in the project when None."""
    python: Path | None = None
    """Interpreter whose Torch is built against first; found when None."""
    toolchain: str = "auto"
    """Which `ToolchainSource` provides: a name of `kbuild.pipeline.toolchains.TOOLCHAIN_NAMES`."""
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Folders with the headers of dependencies, by dependency."""
    torch_wheels: tuple[Path, ...] = ()
    """Wheel files of Torch, built against first by the variants that they fit."""
    archs: tuple[str, ...] = ()
    """What backends with archs are compiled for; all that each kernel asks for when empty."""
    keep_all: bool = False
    """Whether every candidate of kernels in Python DSLs is compiled, for `kbuild tune`."""
    identity: Identity | None = None
    """The state of the source, where the caller knows better than git."""
    dev: bool = False
    """Whether names are to stay while files are edited; see `Identity.for_development`."""
    provenance: bool = False
    """Whether a provenance statement and an SBOM are written beside each variant."""
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Checks that are overruled, with reasons; see `kbuild.checks.allow`."""
    objects: bool = True
    """False when the object cache is not to be looked into, and gets nothing."""
    fresh: bool = False
    """Whether every variant is loaded, those that were loaded before as they are included."""
    max_file_size: int = 256 << 20
    """Bytes of the largest file of the project that may go into a variant."""
    jobs: int | None = None
    """Compiler processes of all variants together; as many as there are processors when None."""
    memory: int | None = None
    """MiB for all compilers together; what is free when None."""
    seconds: float | None = None
    """Time after which nothing is started."""


BuildStatus = Literal["built", "up-to-date", "skipped", "failed", "incomplete"]


@dataclass(frozen=True)
class BuildResult:
    """What became of one variant."""

    variant: str
    status: BuildStatus
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
    """The statement and the SBOM, where they were asked for."""
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

"""What a build is asked for, and the doors through which it touches the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.identity import Identity
from kbuild.matrix.selection import Selection
from kbuild.run import Runner
from kbuild.ui import Ui


@dataclass(frozen=True)
class Doors:
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
    """Which `ToolchainSource` provides: a name of `kbuild.pipeline.tools.NAMES`."""
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
    """Whether a provenance statement and a list of ingredients are written beside each variant."""
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

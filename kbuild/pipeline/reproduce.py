"""Building variants again elsewhere, from nothing but source and toolchains, and comparing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kbuild import __version__
from kbuild.comparison import compare_folders
from kbuild.errors import CheckError
from kbuild.fileset import sha256
from kbuild.identity import Identity
from kbuild.matrix.selection import Selection
from kbuild.metadata import METADATA_FILE, GitState, Metadata, MetadataError, read_metadata
from kbuild.pipeline.build import build
from kbuild.pipeline.elsewhere import Elsewhere, FreshSource, fresh_source
from kbuild.pipeline.options import BuildOptions, Doors
from kbuild.pipeline.outcome import Built
from kbuild.pipeline.plans import plan
from kbuild.pipeline.reproduction import Reproduction, State
from kbuild.pipeline.tools import NAMES
from kbuild.project import Project, open_project
from kbuild.scratch import scratch

_SURROUNDINGS = {"TZ": "Pacific/Kiritimati", "LANG": "C"}
"""What a build elsewhere has otherwise, besides its folder and that of temporary files."""


@dataclass(frozen=True)
class _Original:
    """One variant as it was built before."""

    folder: Path
    metadata: Metadata

    @property
    def variant(self) -> str:
        return self.folder.name

    @property
    def state(self) -> GitState | None:
        """Of the source."""
        provenance = self.metadata.provenance
        return provenance.kernel if provenance else None

    @property
    def identity(self) -> Identity:
        """As it is in the names of its operators."""
        prefix = f"_{self.metadata.python_name}_{self.metadata.backend}_"
        state = self.state
        return Identity(
            self.metadata.id.removeprefix(prefix),
            state.commit if state else None,
            state.dirty if state else False,
        )

    @property
    def toolchain(self) -> str | None:
        """Name of the source that its toolchain came from, if it says so."""
        provenance = self.metadata.provenance
        used = provenance.builder.toolchain if provenance else None
        return used.source if used and used.source in NAMES else None

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Why it may differ although nothing is wrong."""
        provenance = self.metadata.provenance
        made = provenance.builder if provenance else None
        if made is None or (made.name, made.version) == ("kbuild", __version__):
            return ()
        return (f"built by {made.name} {made.version}; this is kbuild {__version__}",)


@dataclass(frozen=True)
class Again:
    """How variants are built again."""

    options: BuildOptions
    """Whatever the recorded variants do not say themselves."""
    toolchain: str | None = None
    """The toolchain source for all; the recorded one when None."""
    keep: Path | None = None
    """Folder that gets what was built; nothing is kept when None."""


def reproduce(
    project: Project, folders: Sequence[Path], again: Again, doors: Doors
) -> tuple[Reproduction, ...]:
    """Build the variants of these folders again, and compare.

    The source is copied to a fresh folder, in which it is built with other temporary files and
    surroundings, without the object cache. Toolchains come from the store.

    Raises:
        CheckError: a folder has no metadata that can be read.
    """
    originals = [_original(folder) for folder in folders]
    found: dict[str, Reproduction] = {}
    with scratch("reproduce") as held:
        doors = replace(doors, runner=Elsewhere(doors.runner, {}, held.lock))
        place = held.folder.resolve()
        for number, group in enumerate(_alike(originals)):
            bench = _Bench(project, again, doors, place / str(number))
            found |= bench.results(group)
    return tuple(found[original.variant] for original in originals)


def _original(folder: Path) -> _Original:
    try:
        return _Original(folder, read_metadata(folder))
    except (OSError, MetadataError) as error:
        raise CheckError(f"`{folder / METADATA_FILE}` cannot be read: {error}", ()) from error


def _alike(originals: Iterable[_Original]) -> Iterable[Sequence[_Original]]:
    """Those that one build command can make: of one source state, with one toolchain."""
    groups: dict[object, list[_Original]] = {}
    for original in originals:
        key = (original.state, original.identity.unique_id, original.toolchain)
        told = tuple(original.metadata.overruled.items())
        groups.setdefault((*key, original.metadata.archs, told), []).append(original)
    return groups.values()


@dataclass(frozen=True)
class _Bench:
    """One group's place."""

    project: Project
    again: Again
    doors: Doors
    place: Path

    def results(self, group: Sequence[_Original]) -> Mapping[str, Reproduction]:
        """What became of each variant of the group."""
        first = group[0]
        source = fresh_source(
            self.project.root, first.state, self.place / "source", self.doors.runner
        )
        for warning in dict.fromkeys((*source.warnings, *first.warnings)):
            self.doors.ui.warn(warning)
        built = {one.variant: one for one in self._build(source, group)}
        return {one.variant: self._compared(one, built.get(one.variant)) for one in group}

    def _build(self, source: FreshSource, group: Sequence[_Original]) -> tuple[Built, ...]:
        fresh = open_project(source.root)
        scratch = self.place / "tmp"
        scratch.mkdir()
        doors = replace(
            self.doors,
            runner=Elsewhere(self.doors.runner, {**_SURROUNDINGS, "TMPDIR": str(scratch)}),
        )
        options, first = self.again.options, group[0]
        options = replace(
            options,
            selection=Selection(globs=tuple(original.variant for original in group)),
            identity=first.identity,
            toolchain=self.again.toolchain or first.toolchain or options.toolchain,
            output=self.again.keep or self.place / "built",
            objects=False,
            fresh=True,
            allowed=first.metadata.overruled,
        )
        return build(fresh, replace(options, archs=_archs(fresh, options, group, doors)), doors)

    def _compared(self, original: _Original, built: Built | None) -> Reproduction:
        if built is None or built.path is None or built.status != "built":
            reason = built.reason if built else "the source has no such variant"
            status: State = built.status if built else "skipped"
            error = built.error if built else None
            return Reproduction(original.variant, status, original.folder, reason, error=error)
        differences = compare_folders(original.folder, built.path)
        digest = sha256((built.path / METADATA_FILE).read_bytes())
        return Reproduction(
            original.variant,
            "differs" if differences else "same",
            original.folder,
            seconds=built.seconds,
            files=sum(1 for path in built.path.rglob("*") if path.is_file()),
            metadata=digest,
            differences=differences,
        )


def _archs(
    project: Project, options: BuildOptions, group: Sequence[_Original], doors: Doors
) -> tuple[str, ...]:
    """The recorded archs, where a plain build would not compile for just these."""
    wanted = group[0].metadata.archs or ()
    plain = plan(project, options.selection, doors.runner, identity=options.identity)
    return () if all(made.archs == wanted for made in plain) else wanted

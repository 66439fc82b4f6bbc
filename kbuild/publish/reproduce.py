"""Builds variants again, from a copy of the source in other surroundings, and compares them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from kbuild import __version__
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.result import BuildResult
from kbuild.pipeline.toolchains import TOOLCHAIN_NAMES
from kbuild.plan.metadata import (
    METADATA_FILE,
    GitState,
    Metadata,
    MetadataError,
    read_metadata,
)
from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import Selection, systems_in_names
from kbuild.plan.variant import Identity, Planner
from kbuild.publish.comparison import FileDifference, compare_folders
from kbuild.system.errors import CheckError, KbuildError
from kbuild.system.files import sha256
from kbuild.system.git import Repository
from kbuild.system.processes import ProcessResult, Runner
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.temporary import locked_temporary_folder
from kbuild.toolchains.plugins import plugin_toolchain_names

ReproductionStatus = Literal[
    "same", "differs", "built", "up-to-date", "skipped", "failed", "incomplete"
]


@dataclass(frozen=True)
class Reproduction:
    """One variant, built before and built again."""

    variant: str
    status: ReproductionStatus
    path: Path
    """The variant directory that was compared with."""
    reason: str = ""
    """Reason that it was not built again."""
    seconds: float = 0.0
    files: int = 0
    """Files of the variant that was built again."""
    metadata: str = ""
    """SHA-256 of its `metadata.json`, which carries the digests of all others."""
    differences: tuple[FileDifference, ...] = ()
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


_LEFT_OUT = {"build", "result"}


@dataclass(frozen=True)
class RunnerWithEnvironment:
    """A `Runner` whose processes see some variables with other values, and inherit more."""

    inner: Runner
    changes: Mapping[str, str]
    inherit: tuple[int, ...] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        inherit: Sequence[int] = (),
        **settings: Any,
    ) -> ProcessResult:
        """See `Runner.run`."""
        whole = {**(os.environ if env is None else env), **self.changes}
        return self.inner.run(argv, env=whole, inherit=(*inherit, *self.inherit), **settings)

    def stop(self) -> None:
        """See `Runner.stop`."""
        self.inner.stop()


@dataclass(frozen=True)
class SourceCopy:
    """A copy of the source, and what is to be known about it."""

    root: Path
    """The project's folder in the copy."""
    warnings: tuple[str, ...] = ()


def copy_source(root: Path, recorded: GitState | None, into: Path, runner: Runner) -> SourceCopy:
    """The source that a variant was built from: its commit, where git here has it.

    Args:
        root: the project's folder.
        recorded: what the variant says of its source; None when that was not in git.
        into: a folder that does not exist yet.
        runner: starts git.

    Returns:
        The copy; its files are those of `root` for a variant from changed files, from outside of
        git, or from a commit that is not here. The warnings say when that matters.
    """
    if recorded is None:
        return _copy_files(root, into)
    short = recorded.commit[:12]
    repository = Repository(root, runner)
    here = repository.ask("rev-parse", "HEAD")
    other = "" if here == recorded.commit else f", and the commit here is {(here or 'none')[:12]}"
    if recorded.dirty:
        message = f"built from changed files of commit {short}{other}; the current files are used"
        return _copy_files(root, into, message)
    if repository.ask("cat-file", "-e", f"{recorded.commit}^{{commit}}") is None:
        return _copy_files(
            root, into, f"commit {short} is not in this repository; the current files are used"
        )
    done = repository.copy(recorded.commit, into)
    if not done.ok:
        raise KbuildError(f"git cannot make a copy of the source: {done.output.strip()}")
    # The project may be a folder of its repository, which is copied as a whole.
    copy = into / (repository.ask("rev-parse", "--show-prefix") or "")
    if here != recorded.commit:
        return SourceCopy(copy, (f"built from commit {short}{other}; {short} is built again",))
    if repository.is_changed("."):
        message = f"files here differ from commit {short}; the commit is built again"
        return SourceCopy(copy, (message,))
    return SourceCopy(copy)


def _copy_files(root: Path, into: Path, *warnings: str) -> SourceCopy:
    tree = SourceTree(root)

    def left_out(folder: str, names: Iterable[str]) -> set[str]:
        top = _LEFT_OUT if Path(folder) == root else set()
        hidden = {name for name in names if name.startswith(".") and Path(folder, name).is_dir()}
        unbuildable = {name for name in names if _is_unbuildable_file(tree, Path(folder, name))}
        return hidden | top | unbuildable | {"__pycache__"}

    shutil.copytree(root, into, ignore=left_out, ignore_dangling_symlinks=True)
    return SourceCopy(into, warnings)


def _is_unbuildable_file(tree: SourceTree, path: Path) -> bool:
    """True for pipes, devices and links that lead out or nowhere: no build takes these."""
    name = path.relative_to(tree.root).as_posix()
    return not tree.is_inside(name) or (not path.is_dir() and tree.fault(name) is not None)


_CHANGED_ENVIRONMENT = {"TZ": "Pacific/Kiritimati", "LANG": "C"}
"""Differences of a build elsewhere, besides its folder and that of temporary files."""


@dataclass(frozen=True)
class _RecordedVariant:
    """One variant as it was built before."""

    folder: Path
    metadata: Metadata

    @property
    def variant(self) -> str:
        return self.folder.name

    @property
    def state(self) -> GitState | None:
        """State of the source."""
        provenance = self.metadata.provenance
        return provenance.kernel if provenance else None

    @property
    def identity(self) -> Identity:
        """The identity in the names of its operators."""
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
        return (
            used.source
            if used and used.source in (*TOOLCHAIN_NAMES, *plugin_toolchain_names())
            else None
        )

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """The reasons that it may differ although nothing is wrong."""
        provenance = self.metadata.provenance
        builder = provenance.builder if provenance else None
        if builder is None or (builder.name, builder.version) == ("kbuild", __version__):
            return ()
        return (f"built by {builder.name} {builder.version}; this is kbuild {__version__}",)


@dataclass(frozen=True)
class RebuildOptions:
    """Settings of the second build."""

    options: BuildOptions
    """Whatever the recorded variants do not say themselves."""
    toolchain: str | None = None
    """The toolchain source for all; the recorded one when None."""
    keep: Path | None = None
    """Folder that gets what was built; nothing is kept when None."""


def reproduce(
    project: Project, folders: Sequence[Path], again: RebuildOptions, services: Services
) -> tuple[Reproduction, ...]:
    """Build the variants of these folders again, and compare.

    The source is copied to a fresh folder, in which it is built with other temporary files and
    surroundings, without the object cache. Toolchains come from the store.

    Raises:
        CheckError: a folder has no metadata that can be read.
    """
    originals = [_read_recorded(folder) for folder in folders]
    reproductions: dict[str, Reproduction] = {}
    with locked_temporary_folder("reproduce") as held:
        services = replace(services, runner=RunnerWithEnvironment(services.runner, {}, held.lock))
        place = held.folder.resolve()
        # Those that one build command can make: of one source state, with one toolchain.
        groups: dict[object, list[_RecordedVariant]] = {}
        for original in originals:
            key = (original.state, original.identity.unique_id, original.toolchain)
            overruled = tuple(original.metadata.overruled.items())
            groups.setdefault((*key, original.metadata.archs, overruled), []).append(original)
        group_by_source = groups.values()
        for number, group in enumerate(group_by_source):
            rebuild = _GroupRebuild(project, again, services, place / str(number))
            reproductions |= rebuild.results(group)
    return tuple(reproductions[original.variant] for original in originals)


def _read_recorded(folder: Path) -> _RecordedVariant:
    try:
        return _RecordedVariant(folder, read_metadata(folder))
    except (OSError, MetadataError) as error:
        raise CheckError(f"`{folder / METADATA_FILE}` cannot be read: {error}", ()) from error


@dataclass(frozen=True)
class _GroupRebuild:
    """One group's place."""

    project: Project
    again: RebuildOptions
    services: Services
    place: Path

    def results(self, group: Sequence[_RecordedVariant]) -> Mapping[str, Reproduction]:
        """The outcome for each variant of the group."""
        first = group[0]
        source = copy_source(
            self.project.root, first.state, self.place / "source", self.services.runner
        )
        for warning in dict.fromkeys((*source.warnings, *first.warnings)):
            self.services.ui.warn(warning)
        built = {result.variant: result for result in self._build(source, group)}
        return {
            original.variant: self._compared(original, built.get(original.variant))
            for original in group
        }

    def _build(
        self, source: SourceCopy, group: Sequence[_RecordedVariant]
    ) -> tuple[BuildResult, ...]:
        fresh = open_project(source.root)
        scratch = self.place / "tmp"
        scratch.mkdir()
        services = replace(
            self.services,
            runner=RunnerWithEnvironment(
                self.services.runner, {**_CHANGED_ENVIRONMENT, "TMPDIR": str(scratch)}
            ),
        )
        options, first = self.again.options, group[0]
        names = tuple(original.variant for original in group)
        options = replace(
            options,
            selection=Selection(globs=names, cross=systems_in_names(names)),
            identity=first.identity,
            toolchain=self.again.toolchain or first.toolchain or options.toolchain,
            output=self.again.keep or self.place / "built",
            # From the cache, objects would be the same bytes in any case, which proves nothing.
            use_object_cache=False,
            fresh=True,
            allowed=first.metadata.overruled,
        )
        # The recorded archs, where a plain build would not compile for just these.
        wanted = group[0].metadata.archs or ()
        planner = Planner(fresh, SourceTree(fresh.root), services.runner, options.identity)
        plain = planner.select(options.selection)
        archs = () if all(plan.archs == wanted for plan in plain) else wanted
        return build(fresh, replace(options, archs=archs), services)

    def _compared(self, original: _RecordedVariant, built: BuildResult | None) -> Reproduction:
        if built is None or built.path is None or built.status != "built":
            reason = built.reason if built else "the source has no such variant"
            status: ReproductionStatus = built.status if built else "skipped"
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

"""Advice for a project on its way to the stable ABI, for each backend."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.project import Project
from kbuild.plugins.advice.stable_abi import StableAbiTable, stable_abi_table
from kbuild.plugins.advice.uses import (
    ApiUse,
    FileNames,
    ScannedSource,
    VersionRequirement,
    collect_names,
    file_names,
    find_uses,
    find_version_requirements,
    join_qualified_names,
)
from kbuild.project.config.model import KernelSection, TorchSection
from kbuild.sources.cxx import cxx_tokens
from kbuild.sources.includes import IncludeGraph, resolve_include
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version

_USUAL_INCLUDE = "csrc"


@dataclass(frozen=True)
class BackendAdvice:
    """The changes with which one backend's sources leave Torch's C++ API."""

    backend: str
    declared: Version | None
    """`stable-abi` of `build.toml` for this backend."""
    files: tuple[str, ...]
    """The sources and project headers that were read."""
    uses: tuple[ApiUse, ...]
    demands: tuple[VersionRequirement, ...]

    @property
    def without(self) -> tuple[ApiUse, ...]:
        """The uses that the table has no replacement for."""
        return tuple(use for use in self.uses if use.entry.stable is None)

    @property
    def floor(self) -> Version:
        """The oldest Torch that the backend runs on once every use is replaced."""
        replaced = [use.entry.since for use in self.uses if use.entry.since]
        needed = [demand.since for demand in self.demands]
        return max([stable_abi_table().base, *replaced, *needed])

    @property
    def raised_by(self) -> tuple[str, ...]:
        """The uses that raise the floor above the oldest one, as written."""
        floor = self.floor
        if floor == stable_abi_table().base:
            return ()
        replaced = (use.text for use in self.uses if use.entry.since == floor)
        needed = (demand.text for demand in self.demands if demand.since == floor)
        return tuple(dict.fromkeys([*replaced, *needed]))

    def to_json(self) -> dict[str, object]:
        """The advice as a JSON object."""
        return {
            "backend": self.backend,
            "stable-abi": str(self.declared) if self.declared else None,
            "stable": not self.uses,
            "replaceable": not self.without,
            "floor": str(self.floor),
            "floor-due-to": list(self.raised_by),
            "files": list(self.files),
            "uses": [use.to_json() for use in self.uses],
        }


def advise_project(
    project: Project, tree: SourceTree, backends: Iterable[str]
) -> tuple[BackendAdvice, ...]:
    """The advice for these backends, in their order."""
    adviser = _ProjectAdviser(project, tree)
    return tuple(adviser.advise(backend) for backend in backends)


class _ProjectAdviser:
    """Reads each file once, whatever number of backends share it."""

    def __init__(self, project: Project, tree: SourceTree) -> None:
        self._project = project
        self._tree = tree
        self._table: StableAbiTable = stable_abi_table()
        self._names: dict[str, FileNames] = {}
        self._resolved: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._sources: dict[tuple[str, tuple[str, ...]], ScannedSource] = {}
        self._includes = IncludeGraph(self._tree)
        self._own = {name for framework in FRAMEWORKS for name in framework.support_files}

    def advise(self, backend: str) -> BackendAdvice:
        """The advice for one backend."""
        folders = self._folders(backend)
        files = {
            path: where for listed, where in folders.items() for path in self._reach(listed, where)
        }
        sources = [self._source(path, where) for path, where in files.items()]
        torch = self._project.file.torch
        return BackendAdvice(
            backend=backend,
            declared=torch.stable_abi_for(backend) if torch else None,
            files=tuple(files),
            uses=tuple(use for source in sources for use in find_uses(source, self._table)),
            demands=tuple(
                requirement
                for source in sources
                for requirement in find_version_requirements(source, self._table)
            ),
        )

    def _folders(self, backend: str) -> dict[str, tuple[str, ...]]:
        """Every listed source of a backend -> the include folders that it is compiled with."""
        torch = self._project.file.torch
        kernels = self._project.cxx_kernels_for(backend).values()
        sections: list[TorchSection | KernelSection] = [*([torch] if torch else []), *kernels]
        usual = (_USUAL_INCLUDE,) if self._tree.is_dir(_USUAL_INCLUDE) else ()
        return {
            posixpath.normpath(source): tuple(dict.fromkeys((*section.include, *usual)))
            for section in sections
            for source in section.src
        }

    def _reach(self, path: str, folders: Sequence[str]) -> tuple[str, ...]:
        """The file and the project headers that it reads, without those that kbuild writes."""
        files = self._includes.reachable((path,), folders)
        return tuple(file for file in files if posixpath.basename(file) not in self._own)

    def _read(self, path: str) -> FileNames:
        if path not in self._names:
            tokens = join_qualified_names(cxx_tokens(self._tree.read_text(path)))
            self._names[path] = file_names(tokens, self._table)
        return self._names[path]

    def _source(self, path: str, folders: tuple[str, ...]) -> ScannedSource:
        key = (path, folders)
        if key not in self._sources:
            reached = [self._read(file) for file in self._reach(path, folders)]
            self._sources[key] = ScannedSource(
                path,
                self._read(path).tokens,
                collect_names(reached, self._table),
                lambda name: self._resolves(name, path, folders),
            )
        return self._sources[key]

    def _resolves(self, name: str, path: str, folders: Sequence[str]) -> bool:
        key = (name, (posixpath.dirname(path), *folders))
        if key not in self._resolved:
            self._resolved[key] = bool(resolve_include(self._tree, *key))
        return self._resolved[key]

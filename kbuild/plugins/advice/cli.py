"""`kbuild abi-advice`: the way to Torch's stable ABI, for each backend of a project."""

from __future__ import annotations

import posixpath
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.cli.parser import add_json, add_kernel_dir
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
from kbuild.system.errors import UsageError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version

if TYPE_CHECKING:
    from kbuild.plugins.advice.uses import ApiUse


_USUAL_INCLUDE = "csrc"


@dataclass(frozen=True)
class BackendAdvice:
    """What one backend's sources need to leave Torch's C++ API."""

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
        """What the floor is due to, as written, when it is above the oldest one."""
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
        kernels = self._project.kernels_for(backend).values()
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


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="select a backend (repeatable)",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Print every use and its replacement; always 0, since advice is no verdict."""
    from kbuild.plan.project import open_project
    from kbuild.system.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    # The backends that compile against Torch, and of these the wanted ones.
    compiled = [name for name in project.file.general.backends if project.is_compiled(name)]
    known = tuple(compiled) if project.file.torch else ()
    for name in args.backend:
        if name not in project.file.general.backends:
            listed = ", ".join(project.file.general.backends)
            raise UsageError(f"the project has no backend `{name}`", hint=f"it has {listed}")
    advice_list = advise_project(
        project, tree, tuple(name for name in known if not args.backend or name in args.backend)
    )
    if args.json:
        from kbuild.plugins.advice.stable_abi import stable_abi_table

        advice_json = {
            "torch-headers": str(stable_abi_table().torch),
            "backends": [advice.to_json() for advice in advice_list],
        }
        ctx.ui.data_json(advice_json)
    elif not advice_list:
        ctx.ui.data(f"{project.name} compiles nothing against Torch")
    elif not any(advice.uses for advice in advice_list):
        ctx.ui.data(_stable_summary(project.name, advice_list))
    else:
        _print_uses(advice_list, ctx)
    return 0


def _print_uses(advice_list: Sequence[BackendAdvice], ctx: Services) -> None:
    uses: dict[str, dict[ApiUse, None]] = {}
    for use in (use for advice in advice_list for use in advice.uses):
        uses.setdefault(use.file, {})[use] = None
    backends: dict[str, list[str]] = {}
    for advice in advice_list:
        for file in advice.files:
            backends.setdefault(file, []).append(advice.backend)
    for file, own in uses.items():
        readers = backends[file]
        only = [f"  only for {', '.join(readers)}"] if len(readers) < len(advice_list) else []
        ctx.ui.table((file, "instead", "since", "line:column"), _rows(own))
        ctx.ui.data("\n".join([*only, *_notes(own)]))
        ctx.ui.data("\n")
    ctx.ui.data("\n".join(_backend_summary(advice) for advice in advice_list))


def _rows(uses: Iterable[ApiUse]) -> list[tuple[str, str, str, str]]:
    """One row for each thing that a file uses, with every place of it."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for use in uses:
        since = str(use.entry.since) if use.entry.since else "-"
        row = (use.text, use.entry.stable or "no replacement known", since)
        places.setdefault(row, []).append(f"{use.line}:{use.column}")
    return [(*row, " ".join(where)) for row, where in places.items()]


def _notes(uses: Iterable[ApiUse]) -> Iterator[str]:
    for note, texts in _by_note(uses).items():
        yield f"  {', '.join(texts)}: {note}"


def _by_note(uses: Iterable[ApiUse]) -> dict[str, list[str]]:
    notes: dict[str, list[str]] = {}
    for use in uses:
        texts = notes.setdefault(use.entry.note, [])
        if use.text not in texts:
            texts.append(use.text)
    notes.pop("", None)
    return notes


def _backend_summary(advice: BackendAdvice) -> str:
    if not advice.uses:
        return f"{advice.backend}: only the stable ABI is used, from Torch {advice.floor} on"
    files = len({use.file for use in advice.uses})
    count = f"{_counted(len(advice.uses), 'use')} in {_counted(files, 'file')}"
    return f"{advice.backend}: {count}; {_replacement_summary(advice)}"


def _replacement_summary(advice: BackendAdvice) -> str:
    """Whether the stable ABI has everything, and from which Torch on."""
    due = f" ({', '.join(advice.raised_by)})" if advice.raised_by else ""
    has = f"a stable replacement from Torch {advice.floor} on{due}"
    if not advice.without:
        return f"every one has {has}"
    kinds = ", ".join(dict.fromkeys(use.text for use in advice.without))
    return f"{len(advice.uses) - len(advice.without)} have {has}; none is known for {kinds}"


def _stable_summary(name: str, advice_list: Sequence[BackendAdvice]) -> str:
    """One line for a project that uses the stable ABI only."""
    floor = max(advice.floor for advice in advice_list)
    text = f"{name}: only the stable ABI is used; it runs on Torch {floor} and later"
    asked = [advice.declared for advice in advice_list if advice.declared]
    if len(asked) < len(advice_list):
        return f'{text}: declare it with `stable-abi = "{floor}"` in [torch]'
    if min(asked) < floor:
        return f"{text}, but build.toml declares {min(asked)}"
    return f"{text}, and build.toml declares {min(asked)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"

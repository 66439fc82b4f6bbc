"""The places of files in a kernel's repository, and what is published there already.

| branch | content |
|---|---|
| `main` | `<build>/CARD.md` as `README.md`, |
| version | `build/<variant>/...` |
| version | `benchmarks/benchmark*.py`, and results in `benchmarks/results/*.json` |
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kbuild.plan.digest import recorded_files
from kbuild.plan.metadata import METADATA_FILE
from kbuild.publish.hub.repository import (
    Refs,
    RemoteFiles,
    UploadFile,
    read_upload_file,
    read_upload_files,
)
from kbuild.system.sourcetree import SourceTree

BUILD = "build"
BENCHMARKS = "benchmarks"
README = "README.md"
_BENCHMARK_PATH = re.compile(r"benchmarks/(?:benchmark[^/]*\.py|results/[^/]+\.json)")
_NOT_IN_DIGEST_FILES = (METADATA_FILE, f"{METADATA_FILE}.sigstore")
_LEFTOVERS = (
    *("__pycache__", "*.pyc", ".DS_Store", "._*", "Thumbs.db", "desktop.ini"),
    *("*~", "*.swp", "*.swo", ".#*", "#*#", "*.orig", "*.rej", ".kbuild-*", ".nfs*"),
)
"""Names that editors, file managers and interpreters leave in folders."""


@dataclass(frozen=True)
class UploadLayout:
    """The files of one upload."""

    variants: Mapping[str, tuple[UploadFile, ...]]
    benchmarks: tuple[UploadFile, ...] | None = None
    """None when the project has no such folder: what the repository has then stays."""
    card: tuple[UploadFile, ...] = ()

    @property
    def entries(self) -> tuple[UploadFile, ...]:
        """The files that the version branch should hold, in path order."""
        files = [entry for entries in self.variants.values() for entry in entries]
        return tuple(sorted((*files, *(self.benchmarks or ())), key=lambda entry: entry.path))

    @property
    def fingerprint(self) -> str:
        """Names the content: ten hex digits."""
        lines = "".join(f"{entry.path}\0{entry.sha256}\n" for entry in self.entries)
        return hashlib.sha256(lines.encode()).hexdigest()[:10]

    def owns(self, path: str) -> bool:
        """True for a path of the repository that this upload decides about."""
        if is_benchmark(path):
            return self.benchmarks is not None
        return variant_of(path) in self.variants

    def stale(self, paths: Iterable[str], *, is_new: bool) -> tuple[str, ...]:
        """The paths of a branch that have to go, in path order.

        Args:
            paths: of the branch.
            is_new: whether the branch is just being made, from another one. It then keeps nothing
                of `build/`; one that exists keeps its other variants.
        """
        wanted = {entry.path for entry in self.entries}
        rest = (path for path in paths if path not in wanted)
        decide = self._goes_from_new if is_new else self.owns
        return tuple(sorted(path for path in rest if decide(path)))

    def _goes_from_new(self, path: str) -> bool:
        top = path.partition("/")[0]
        return top == BUILD or (top == BENCHMARKS and self.benchmarks is not None)


def read_layout(
    variants: Iterable[Path], project: Path | None, card: Mapping[str, Path | bytes] | None = None
) -> UploadLayout:
    """Read and hash every file that an upload is made of.

    Args:
        variants: folders of built variants.
        project: the folder with `benchmarks/`, if there is one.
        card: what shows the kernel on `main`, by path: the card.

    Raises:
        ConfigError: a benchmark leads out of the project.
        OSError: a file cannot be read.
    """
    files = {folder.name: read_upload_files(variant_files(folder)) for folder in variants}
    shown = tuple(read_upload_file(path, source) for path, source in sorted((card or {}).items()))
    return UploadLayout(dict(sorted(files.items())), _benchmarks(project), shown)


def variant_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Path in the repository and file, for a variant; in path order."""
    recorded = recorded_files(folder)
    for path, file in sorted(_files_below(folder)):
        if path in recorded or path in _NOT_IN_DIGEST_FILES or not is_leftover(path):
            yield f"{BUILD}/{folder.name}/{path}", file


def variant_of(path: str) -> str:
    """The variant that a path of a repository belongs to; empty for all others."""
    parts = path.split("/")
    return parts[1] if parts[0] == BUILD and len(parts) > 2 else ""  # noqa: PLR2004


def is_benchmark(path: str) -> bool:
    """True for a path of a repository that uploads of benchmarks decide about."""
    return _BENCHMARK_PATH.fullmatch(path) is not None


def _benchmarks(project: Path | None) -> tuple[UploadFile, ...] | None:
    folder = project / BENCHMARKS if project else None
    if project is None or folder is None or not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [(path.relative_to(project).as_posix(), path) for path in files]
    chosen = [(name, path) for name, path in named if is_benchmark(name)]
    for name, _ in chosen:
        SourceTree(project).refuse(name)
    return read_upload_files(chosen)


def _files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files as the digest counts them: links to folders are not followed."""
    for base, folders, files in os.walk(folder):
        folders.sort()
        for name in files:
            file = Path(base, name)
            if file.is_file() or file.is_symlink():
                yield file.relative_to(folder).as_posix(), file


def is_leftover(path: str) -> bool:
    """True for what editors and interpreters leave in folders, which is never sent."""
    return any(fnmatchcase(part, glob) for part in path.split("/") for glob in _LEFTOVERS)


_VERSION_BRANCH = re.compile(r"v(\d{1,9})")


def versions_of(refs: Refs) -> dict[int, str]:
    """Published versions in order, and the commit of each."""
    versions = {int(match[1]): commit for name, commit in refs.branches.items()
             if (match := _VERSION_BRANCH.fullmatch(name))}  # fmt: skip
    return dict(sorted(versions.items()))


def variants_of(tree: RemoteFiles) -> frozenset[str]:
    """The variants of a branch that the client can load: those with metadata."""
    return frozenset(
        variant
        for path in tree
        if (variant := variant_of(path)) and path == f"{BUILD}/{variant}/{METADATA_FILE}"
    )


def size_of_variants(tree: RemoteFiles, variants: Iterable[str]) -> int:
    """Bytes of some variants."""
    wanted = frozenset(variants)
    return sum(file.size for path, file in tree.items() if variant_of(path) in wanted)

"""The project files that C++ sources include, found by reading their `#include` lines.

Conditions are not evaluated and comments are not skipped. Each file is read once per source tree.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kbuild.system.sourcetree import SourceTree

_INCLUDE = re.compile(rb'#[ \t]*(include(?:_next)?|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)')
CODE_SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".cu", ".cpp", ".cc", ".cxx", ".hip")
"""Suffixes of files that planning reads, as a rule."""
_NAME_SUFFIX = "_NAME"
_NAME = re.compile(rb"\w*_NAME\b")
_BLANKS = b" \t\r"


class IncludeLine(NamedTuple):
    """One line that includes a file."""

    name: str
    line: int
    """1-based."""
    is_quoted: bool
    is_next: bool
    """`#include_next`: the file of that name in a later folder."""


class FileScan(NamedTuple):
    """The includes and names of one file."""

    includes: tuple[IncludeLine, ...]
    names: frozenset[str]
    """Identifiers in it that end in `_NAME`, as those of op namespaces do."""


def scan_file(tree: SourceTree, path: str) -> FileScan:
    """Read the includes and names of a file of the project.

    Raises:
        ConfigError: it is not a file, leads out of the project, or is too large.
        OSError: it cannot be read.
    """
    return tree.scan(path, _scan_bytes)


def _scan_bytes(data: bytes) -> FileScan:
    includes, line, at = [], 1, 0
    for match in _INCLUDE.finditer(data):
        start = match.start()
        if data[data.rfind(b"\n", 0, start) + 1 : start].strip(_BLANKS):
            continue  # it is not the first thing in its line
        line += data.count(b"\n", at, start)
        at = start
        name = (match[2] or match[3]).decode("utf-8", errors="replace")
        includes.append(IncludeLine(name, line, match[2] is not None, match[1] == b"include_next"))
    names = _NAME.findall(data) if _NAME_SUFFIX.encode() in data else ()
    return FileScan(tuple(includes), frozenset(name.decode() for name in names))


class _SearchedInclude(NamedTuple):
    """An include that the search path decides about."""

    name: str
    is_next: bool
    beside: str | None
    """The file of that name in the including file's own folder."""


class IncludeGraph:
    """The include lines of one state of a project's files, followed from file to file."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._folders: dict[str, bool] = {}
        self._files: dict[tuple[str, str], str | None] = {}
        self._resolved: dict[tuple[str, ...], dict[str, str | None]] = {}
        self._beside: dict[str, tuple[str | _SearchedInclude, ...]] = {}
        self._reached: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
        self._below: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = {}
        self._searches: dict[str, tuple[set[str], set[str]]] = {}
        """The files in which a word was looked for, and those that hold it."""

    def reachable(self, sources: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
        """The sources and every project file that they include, directly or not.

        They come in discovery order. What is included has one path, without links of folders.

        Args:
            sources: project-relative paths.
            folders: include folders relative to the project. A name in quotes is first searched in
                the including file's own folder, a name in angle brackets last.
        """
        normal = map(posixpath.normpath, folders)
        key = (tuple(sources), tuple("" if folder == "." else folder for folder in normal))
        if key not in self._reached:
            paths: dict[str, None] = {}
            for source in key[0]:
                waiting = [source]
                while waiting:
                    path = waiting.pop()
                    if path not in paths:
                        paths[path] = None
                        waiting.extend(self._targets(path, key[1]))
            self._reached[key] = tuple(paths)
        return self._reached[key]

    def lead_below(
        self, sources: Iterable[str], folders: Iterable[str], roots: tuple[str, ...]
    ) -> bool:
        """True when the sources, or what they include, name a header in one of these folders.

        Args:
            sources: project-relative paths.
            folders: as for `reachable`.
            roots: what the names of such headers start with, up to the first `/`.
        """
        reached = self.reachable(sources, folders)
        key = (reached, roots)
        if key not in self._below:
            self._below[key] = any(
                include.name.partition("/")[0] in roots
                for path in reached
                for include in scan_file(self._tree, path).includes
                if "/" in include.name
            )
        return self._below[key]

    def mention(self, sources: Iterable[str], folders: Iterable[str], word: str) -> bool:
        """True when the sources, or what they include, hold `word` as a whole identifier.

        Args:
            sources: project-relative paths.
            folders: as for `reachable`.
            word: an identifier; one that ends in `_NAME` costs no further look at the files.
        """
        reached = self.reachable(sources, folders)
        seen, holding = self._searches.setdefault(word, (set(), set()))
        # Sources share most of their headers: each is looked into once.
        fresh = [path for path in reached if path not in seen]
        seen.update(fresh)
        holding.update(path for path in fresh if self._holds(word, path))
        return not holding.isdisjoint(reached)

    def _holds(self, word: str, path: str) -> bool:
        if word.endswith(_NAME_SUFFIX):
            return word in scan_file(self._tree, path).names
        text = self._tree.read_text(path)
        return word in text and re.search(rf"\b{re.escape(word)}\b", text) is not None

    def _targets(self, path: str, folders: tuple[str, ...]) -> list[str]:
        """The project files that a file includes, in the order of its lines."""
        beside = self._beside.get(path)
        if beside is None:
            beside = self._beside[path] = tuple(self._found_beside(path))
        files_by_name = self._resolved.setdefault(folders, {})
        targets: list[str] = []
        for target in beside:
            if isinstance(target, str):
                targets.append(target)
                continue
            name, is_next, near = target
            if is_next:
                # Where the search found this file is not known, so all others of the name count.
                targets += self._all(name, folders, but=path)
                continue
            place = (
                files_by_name[name] if name in files_by_name else self._first(name, folders)
            ) or near
            if place is not None:
                targets.append(place)
        return targets

    def _found_beside(self, path: str) -> Iterator[str | _SearchedInclude]:
        """The files that lie where a file names them, whatever is searched; other includes."""
        base = posixpath.dirname(path)
        for include in scan_file(self._tree, path).includes:
            near = None if include.is_next else self._file(base, include.name)
            if near is not None and include.is_quoted:
                yield near
            else:
                yield _SearchedInclude(include.name, include.is_next, near)

    def _all(self, name: str, folders: Iterable[str], but: str) -> list[str]:
        every = (self._file(folder, name) for folder in folders)
        return [target for target in every if target is not None and target != but]

    def _first(self, name: str, folders: tuple[str, ...]) -> str | None:
        """The file that a search finds; the last folders are those of many sections, as a rule."""
        if not folders:
            return None
        files_by_name = self._resolved.setdefault(folders, {})
        if name not in files_by_name:
            files_by_name[name] = self._file(folders[0], name) or self._first(name, folders[1:])
        return files_by_name[name]

    def _file(self, folder: str, name: str) -> str | None:
        """The file that a name means in a folder; None when there is none in the project."""
        key = (folder, name)
        if key not in self._files:
            self._files[key] = self._look_up(folder, name)
        return self._files[key]

    def _look_up(self, folder: str, name: str) -> str | None:
        if name.startswith("/"):
            return None
        path = f"{folder}/{name}" if folder else name
        # True when a path is what it is with each `.` and `..` resolved; most names are.
        is_plain = not name.startswith((".", "/")) and "/." not in name and "//" not in name
        if not is_plain:
            path = posixpath.normpath(path)
        if path.startswith(".."):
            return None
        parent = path.rpartition("/")[0]
        if parent not in self._folders:
            self._folders[parent] = self._tree.is_dir(parent)
        if not self._folders[parent] or not self._tree.is_file(path):
            return None
        return self._tree.canonical(path)


def resolve_include(tree: SourceTree, name: str, folders: Iterable[str]) -> tuple[str, ...]:
    """The project file that an include means, searched in `folders`; empty when there is none."""
    for folder in folders:
        path = posixpath.normpath(posixpath.join(folder, name))
        if not path.startswith(("..", "/")) and tree.is_file(path):
            return (path,)
    return ()

"""A digest of the installed kbuild, byte for byte.

Part of every key under which a result is cached.

It covers modules, data files, templates, plug-ins, the libraries that read inputs, and Python.
It is the same on every machine, and cached while every file's `stat` stays the same.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.system.cache import PACKAGE_DIGESTS, Cache

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


PACKAGE = Path(__file__).parents[1]
LIBRARIES = (
    "tomli", "pydantic", "pydantic_core", "jinja2", "markupsafe", "packaging",
    "pyelftools", "abi3info", "macholib",
)  # fmt: skip
"""Distributions that parse inputs, or write outputs."""
_BYTECODE = "__pycache__"
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's times change with any further change."""
_Row = tuple[str, int, int, int, int]
"""A path, its size, when it was written and when it changed, and its inode."""
_known: dict[Path, str] = {}


def package_digest(cache: Path | None = None, package: Path = PACKAGE) -> str:
    """SHA-256 over all that makes this kbuild answer as it does; found once per process.

    Args:
        cache: kbuild's cache folder, where the digest is kept; None reads every file.
        package: the folder of the package `kbuild`.
    """
    if package not in _known:
        _known[package] = (
            _cached_digest(cache, package) if cache else _digest_of_roots(_roots(package))
        )
    return _known[package]


@lru_cache(maxsize=32)
def files_digest(folder: Path) -> str:
    """SHA-256 over the names and bytes of all files below a folder but bytecode."""
    return _hashed(_lines_of_root(str(folder)))


@lru_cache(maxsize=32)
def code_digest(*files: str | Path) -> str:
    """SHA-256 over some modules and data files of kbuild, by name and content.

    For what is costly to make again, and depends on these alone.
    """
    return _hashed(f"{Path(file).name}\0{_sha256(file)}" for file in files)


def _cached_digest(folder: Path, package: Path) -> str:
    # Where Python looks for modules, but for the folder that the command runs in.
    try:
        here = str(Path.cwd())
    except OSError:  # it was removed
        here = ""
    searched = [path for path in map(str, sys.path) if path not in ("", here)]
    cache, key = Cache(folder, PACKAGE_DIGESTS), _hashed([str(package), sys.version, *searched])
    known = cache.get_json(key, dict)
    if known is not None and known["states"] == _file_states(known["roots"], searched)[0]:
        return str(known["digest"])
    roots = _roots(package)
    states, newest = _file_states(roots, searched)
    digest = _digest_of_roots(roots)
    # Not kept if a file may have changed while it was read: its times could be those of both
    # states.
    is_settled = newest < time.time_ns() - _SETTLED and _file_states(roots, searched)[0] == states
    if is_settled:
        cache.put_json(key, {"roots": roots, "states": states, "digest": digest})
    return digest


def _digest_of_roots(roots: Sequence[str]) -> str:
    """Compute the digest of names and bytes, wherever the files are."""
    lines = [sys.implementation.name, repr(sys.version_info), *_distributions()]
    for root in roots:
        lines += _lines_of_root(root)
    return _hashed(lines)


def _lines_of_root(root: str) -> list[str]:
    contents = (f"{path[len(root) :]}\0{_sha256(path)}" for path, *_ in _files([root]))
    return [root.rpartition(os.sep)[2], *sorted(contents)]


def _file_states(roots: Iterable[str], searched: Iterable[str]) -> tuple[str, int]:
    """A digest of the status of all files, and the time of the latest change.

    A folder that Python searches changes when a distribution is installed, renewed or removed.
    """
    files = sorted(_files(roots))
    for path in searched:
        with suppress(OSError):
            files.append(_row(path, os.stat(path)))
    # Version 0 has no references, which depend on how often an object is in use.
    digest = hashlib.sha256(marshal.dumps(files, 0)).hexdigest()
    return digest, max((row[3] for row in files), default=0)


def _files(roots: Iterable[str]) -> list[_Row]:
    """The files below some folders but bytecode, with their status."""
    files: list[_Row] = []
    pending, followed = list(roots), set()
    while pending:
        folder = pending.pop()
        try:
            entries = os.scandir(folder)
        except NotADirectoryError:  # a plug-in of one module
            files.append(_row(folder, os.stat(folder)))
            continue
        except OSError:
            continue
        with entries:
            for entry in entries:
                path = entry.path
                if not entry.is_dir():
                    try:
                        seen = entry.stat()
                    except OSError:  # a link to nothing, an editor's lock
                        continue
                    files.append(_row(path, seen))
                elif entry.name != _BYTECODE:
                    place = os.path.realpath(path) if entry.is_symlink() else path
                    # Links may form a circle.
                    if place not in followed:
                        followed.add(place)
                        pending.append(path)
    return files


def _row(path: str, status: os.stat_result) -> _Row:
    return (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _roots(package: Path) -> list[str]:
    """The package, its templates in a checkout, and the packages or modules of plug-ins."""
    roots = [str(package)]
    templates = package.parent / "templates"
    if not (package / "templates").is_dir() and templates.is_dir():
        roots.append(str(templates))
    from importlib.util import find_spec

    places: set[str] = set()
    for point in _entry_points():
        with suppress(ImportError, ValueError):
            spec = find_spec(point.module.partition(".")[0])
            if spec is not None:
                own = [spec.origin] if spec.origin else []
                places.update(spec.submodule_search_locations or own)
    return [*roots, *sorted(places)]


def _distributions() -> Iterator[str]:
    from importlib.metadata import PackageNotFoundError, version

    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"
    for point in _entry_points():
        release = point.dist.version if point.dist else ""
        yield f"{point.group} {point.name} {point.value} {release}"


def _entry_points() -> Iterator[EntryPoint]:
    """Entry points of other distributions: backends, checks, languages and the like."""
    from importlib.metadata import entry_points

    for group in sorted(entry_points().groups):
        if group.startswith("kbuild."):
            points = sorted(entry_points(group=group), key=attrgetter("name", "value"))
            # kbuild's own plug-ins are in its package.
            yield from (point for point in points if not point.value.startswith("kbuild."))


def _hashed(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _sha256(path: str | Path) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # it is just being replaced
        return ""

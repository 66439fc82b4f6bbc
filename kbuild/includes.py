"""What C++ sources include from their own project, found by reading `#include "..."` lines."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from kbuild.sourcetree import SourceTree

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def reachable(tree: SourceTree, source: str, folders: Iterable[str]) -> tuple[str, ...]:
    """`source` and every project file that it includes, directly or not, in discovery order.

    Args:
        tree: the project's files.
        source: project-relative path.
        folders: include folders relative to the project, searched after the including file's own.
    """
    found: dict[str, None] = {}
    waiting = [source]
    search = tuple(folders)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        base = posixpath.dirname(path)
        for name in _INCLUDE.findall(tree.read_text(path)):
            waiting.extend(resolve(tree, name, (base, *search)))
    return tuple(found)


def included(tree: SourceTree, path: str) -> tuple[str, ...]:
    """What a file's include lines name."""
    return tuple(_INCLUDE.findall(tree.read_text(path)))


def mentions(tree: SourceTree, paths: Iterable[str], word: str) -> bool:
    """True when one of the files contains `word` as a whole identifier."""
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    return any(pattern.search(tree.read_text(path)) for path in paths)


def resolve(tree: SourceTree, name: str, folders: Iterable[str]) -> tuple[str, ...]:
    """The project file that an include means, searched in `folders`; empty when there is none."""
    for folder in folders:
        path = posixpath.normpath(posixpath.join(folder, name))
        if not path.startswith(("..", "/")) and tree.is_file(path):
            return (path,)
    return ()

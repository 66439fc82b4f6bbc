"""Python sources as syntax trees, whatever their encoding, and answers about whole packages."""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from kbuild.untrusted import reason_of

T = TypeVar("T")
_KEPT = 32
"""Answers of one function that are kept."""


def parse_source(
    source: bytes | str, *, feature_version: tuple[int, int] | None = None
) -> ast.Module:
    """The tree; warnings about the source (bad escapes) are its author's business, not ours.

    Raises:
        SyntaxError: not Python, newer than `feature_version`, or nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, feature_version=feature_version)
    except (ValueError, RecursionError, MemoryError) as error:  # NULs, and what the parser gives up
        raise SyntaxError(reason_of(error)) from error


def by_content(ask: Callable[[Path, str], list[T]]) -> Callable[[Path, str], list[T]]:
    """Ask about a package once for each content of its Python files in this process.

    A package is looked at in the project and again in each variant that is built from it. The
    answer must depend on the Python files below the folder alone, on their paths relative to it,
    on the name, and not on `_ops.py` at the top, which is generated.
    """
    known: dict[tuple[str, bytes], list[T]] = {}
    lock = threading.Lock()

    @functools.wraps(ask)
    def asked(path: Path, name: str) -> list[T]:
        try:
            key = (name, _content(path))
        except OSError:
            return ask(path, name)  # it says which file cannot be read
        with lock:
            answer = known.get(key)
        if answer is None:
            answer = ask(path, name)
            with lock:
                while len(known) >= _KEPT:
                    del known[next(iter(known))]
                known[key] = answer
        return [*answer]

    return asked


def _content(package: Path) -> bytes:
    whole = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.is_file() and file != package / "_ops.py":
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.relative_to(package).as_posix()}\0{digest}\0".encode())
    return whole.digest()


@contextmanager
def growing() -> Iterator[None]:
    """While trees of many files are made, nobody looks for garbage among them.

    They have no cycles, and looking through all of them again and again takes longer than parsing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

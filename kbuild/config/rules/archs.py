"""Lists of archs: each written as its backend writes archs, and listed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue, KeyPath


def arch_lists(document: Document, context: Context) -> Iterator[tuple[KeyPath, Any]]:
    """Paths of the arch lists that a file can have, each with its backend's check."""
    for key, check in context.catalog.arch_keys.values():
        yield ("torch-noarch", key), check
        yield ("torch-noarch", key.replace("-", "_")), check
    for name, _ in document.kernels():
        for _, backend in document.backends_of(name):
            if backend in context.catalog.arch_keys:
                key, check = context.catalog.arch_keys[backend]
                yield ("kernel", name, key), check


def written_well(document: Document, context: Context) -> Iterator[Issue]:
    """Every arch is written as its backend writes archs, and listed once."""
    for path, check in arch_lists(document, context):
        seen = set()
        for place, arch in document.strings(*path):
            yield from _judge(place, arch, check)
            if arch in seen:
                yield Issue(place, f"`{arch}` is listed twice", "keep one of them")
            seen.add(arch)


def _judge(place: KeyPath, arch: str, check: Any) -> Iterator[Issue]:
    try:
        check(arch)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        yield Issue(place, what, hint)


def not_empty(document: Document, context: Context) -> Iterator[Issue]:
    """No list of archs is empty."""
    for path, _ in arch_lists(document, context):
        if document.get(*path) == []:
            yield Issue(path, "lists no archs", "remove the key to take all of them")


RULES = (written_well, not_empty)

"""The `[kernel.*]` sections: names, backends, sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue, KeyPath
from kbuild.config.suggest import listed, one_of

KERNEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")
"""What CMake takes as a target's name."""
_BINDING = "binding"


def names(document: Document, _: Context) -> Iterator[Issue]:
    """A kernel's name can be a CMake target's."""
    for name, _section in document.kernels():
        path = ("kernel", name)
        if not KERNEL_NAME.fullmatch(name):
            hint = "letters, digits, `_`, `-`, `.` and `+`, starting with a letter or `_`"
            yield Issue(path, f"`{name}` cannot be the name of a CMake target", hint)
        elif name == _BINDING:
            message = f"`{name}` is what the framework's own sources are called"
            yield Issue(path, message, "choose another name")


def backends(document: Document, context: Context) -> Iterator[Issue]:
    """Each kernel's backend can be compiled for, and is one of the project's."""
    for name, _ in document.kernels():
        for path, backend in document.backends_of(name):
            yield from _judge(path, backend, document, context)


def _judge(path: KeyPath, backend: str, document: Document, context: Context) -> Iterator[Issue]:
    compiled = context.catalog.kernel_sections
    if backend not in context.catalog.backends:
        yield Issue(path, f"`{backend}` is not a backend", one_of(backend, compiled))
    elif backend not in compiled:
        message = f"`{backend}` kernels are Python files and have no `[kernel.*]` section"
        yield Issue(path, message, f"compiled backends: {listed(sorted(compiled))}")
    elif document.backends() and backend not in document.backends():
        hint = "add it there, or remove this section"
        yield Issue(path, f"`{backend}` is not listed in general.backends", hint)


def uncompiled(document: Document, context: Context) -> Iterator[Issue]:
    """A backend that others of the project are compiled for has a kernel to compile, too."""
    named = (document.backends_of(name) for name, _ in document.kernels())
    compiled = {backend for group in named for _, backend in group}
    for place, backend in document.strings("general", "backends"):
        if compiled and backend in context.catalog.kernel_sections and backend not in compiled:
            message = (
                f"`{backend}` has no `[kernel.*]` section: only Python files are shipped for it"
            )
            hint = f'add a kernel with `backend = "{backend}"`, unless that is meant'
            yield Issue(place, message, hint, "warning")


def sources(document: Document, _: Context) -> Iterator[Issue]:
    """A kernel has sources."""
    for name, section in document.kernels():
        if section.get("src") == []:
            yield Issue(("kernel", name, "src"), "lists no sources", "remove the section if unused")


RULES = (names, backends, uncompiled, sources)

"""Rules for the `[kernel.*]` sections: names, backends, sources, archs, dependencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kbuild.project.config.dependencies import EVERY_BACKEND, libraries, python_packages
from kbuild.project.config.document import Document
from kbuild.project.config.issue import Issue, KeyPath, closest, listed, one_of
from kbuild.project.config.model import UnknownArchError
from kbuild.project.config.rules.context import RuleContext

KERNEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]*")
"""Names that CMake takes for a target."""
_BINDING = "binding"


def section_names(document: Document, _: RuleContext) -> Iterator[Issue]:
    """A kernel's name can be a CMake target's."""
    for name, _section in document.kernels():
        path = ("kernel", name)
        if not KERNEL_NAME.fullmatch(name):
            hint = "letters, digits, `_`, `-`, `.` and `+`, starting with a letter or `_`"
            yield Issue(path, f"`{name}` cannot be the name of a CMake target", hint)
        elif name == _BINDING:
            message = f"`{name}` is what the framework's own sources are called"
            yield Issue(path, message, "choose another name")


def section_backends(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Each kernel's backend can be compiled for, and is one of the project's."""
    known, names = context.catalog.backends, context.catalog.other_names
    # A misspelt backend is reported where it is misspelt, and nowhere else.
    meant = {name if name in known else closest(name, known, names) for name in document.backends()}
    for name, _ in document.kernels():
        for path, backend in document.backends_of(name):
            compiled = context.catalog.kernel_sections
            if backend not in context.catalog.backends:
                yield Issue(path, f"`{backend}` is not a backend", one_of(backend, compiled, names))
            elif backend not in compiled:
                message = f"`{backend}` kernels are Python files and have no `[kernel.*]` section"
                yield Issue(path, message, f"compiled backends: {listed(sorted(compiled))}")
            elif document.backends() and backend not in meant:
                hint = "add it there, or remove this section"
                yield Issue(path, f"`{backend}` is not listed in general.backends", hint)


def backends_without_kernel(document: Document, context: RuleContext) -> Iterator[Issue]:
    """A backend that others of the project are compiled for has a kernel to compile, too."""
    named = (document.backends_of(name) for name, _ in document.kernels())
    compiled = {backend for group in named for _, backend in group}
    for place, backend in document.strings("general", "backends"):
        if compiled and backend in context.catalog.kernel_sections and backend not in compiled:
            message = (
                f"`{backend}` has no `[kernel.*]` section: only Python files are shipped for it"
            )
            hint = f'add a kernel with `backend = "{backend}"`, unless this is intended'
            yield Issue(place, message, hint, "warning")


def sections_have_sources(document: Document, _: RuleContext) -> Iterator[Issue]:
    """A kernel has sources."""
    for name, section in document.kernels():
        if section.get("src") == []:
            yield Issue(("kernel", name, "src"), "lists no sources", "remove the section if unused")


KERNEL_RULES = (section_names, section_backends, backends_without_kernel, sections_have_sources)


def arch_lists(
    document: Document, context: RuleContext
) -> Iterator[tuple[KeyPath, Callable[[str], None]]]:
    """Paths of the arch lists that a file can have, each with its backend's check."""
    for key, check in context.catalog.arch_keys.values():
        yield ("torch-noarch", key), check
        yield ("torch-noarch", key.replace("-", "_")), check
    for name, _ in document.kernels():
        for _, backend in document.backends_of(name):
            if backend in context.catalog.arch_keys:
                key, check = context.catalog.arch_keys[backend]
                yield ("kernel", name, key), check


def valid_archs(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Every arch is written as its backend writes archs, listed once, and at least one is known.

    Archs that no GPU has are left out, like those that a toolkit cannot target.
    """
    for path, check in arch_lists(document, context):
        listed_archs = list(document.strings(*path))
        errors = {arch: _arch_error(arch, check) for _, arch in listed_archs}
        is_one_known = None in errors.values()
        seen = set()
        for place, arch in listed_archs:
            if (error := errors[arch]) is not None:
                what, _, hint = str(error).partition("; ")
                if is_one_known and isinstance(error, UnknownArchError):
                    yield Issue(place, f"{what}: it is left out", hint, "warning")
                else:
                    yield Issue(place, what, hint)
            if arch in seen:
                yield Issue(place, f"`{arch}` is listed twice", "keep one of them")
            seen.add(arch)


def _arch_error(arch: str, check: Callable[[str], None]) -> ValueError | None:
    try:
        check(arch)
    except ValueError as error:
        return error
    return None


def nonempty_arch_lists(document: Document, context: RuleContext) -> Iterator[Issue]:
    """No list of archs is empty."""
    for path, _ in arch_lists(document, context):
        if document.get(*path) == []:
            yield Issue(path, "lists no archs", "remove the key to use all of them")


ARCH_RULES = (valid_archs, nonempty_arch_lists)


def known_libraries(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`kernel.*.depends` names libraries that kbuild can provide, each once."""
    for name, _section in document.kernels():
        seen = set()
        for path, library in document.strings("kernel", name, "depends"):
            if library not in libraries():
                message = f"`{library}` is not a known dependency"
                yield Issue(path, message, one_of(library, libraries()))
            if library in seen:
                yield Issue(path, f"`{library}` is listed twice", "keep one of them")
            seen.add(library)


def known_python_packages(document: Document, context: RuleContext) -> Iterator[Issue]:
    """`python-depends` names packages that the loader can check for."""
    for scope in (EVERY_BACKEND, *context.catalog.general_sections):
        table = ("general",) if scope == EVERY_BACKEND else ("general", scope)
        for path, package in document.strings(*table, "python-depends"):
            if package not in python_packages().get(scope, {}):
                yield _unknown_package(path, package, scope)


def _unknown_package(path: KeyPath, package: str, scope: str) -> Issue:
    elsewhere = [name for name, known in python_packages().items() if package in known]
    if elsewhere:
        table = "general" if elsewhere[0] == EVERY_BACKEND else f"general.{elsewhere[0]}"
        return Issue(path, f"`{package}` does not belong here", f"it goes into `[{table}]`")
    known = python_packages().get(scope, {})
    where = "" if scope == EVERY_BACKEND else f" for {scope}"
    message = f"`{package}` is not a known Python dependency{where}"
    return Issue(path, message, one_of(package, known) or "none are known here")


DEPENDENCY_RULES = (known_libraries, known_python_packages)

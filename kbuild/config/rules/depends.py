"""`depends` and `python-depends`: only what the curated tables know."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.config.curated import EVERY_BACKEND, libraries, python_packages
from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue, KeyPath
from kbuild.config.suggest import one_of


def known_libraries(document: Document, _: Context) -> Iterator[Issue]:
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


def known_python_packages(document: Document, context: Context) -> Iterator[Issue]:
    """`python-depends` names packages that the loader can check for."""
    for scope in (EVERY_BACKEND, *context.catalog.general_sections):
        table = ("general",) if scope == EVERY_BACKEND else ("general", scope)
        for path, package in document.strings(*table, "python-depends"):
            if package not in python_packages().get(scope, {}):
                yield _unknown(path, package, scope)


def _unknown(path: KeyPath, package: str, scope: str) -> Issue:
    elsewhere = [name for name, known in python_packages().items() if package in known]
    if elsewhere:
        table = "general" if elsewhere[0] == EVERY_BACKEND else f"general.{elsewhere[0]}"
        return Issue(path, f"`{package}` does not belong here", f"it goes into `[{table}]`")
    known = python_packages().get(scope, {})
    where = "" if scope == EVERY_BACKEND else f" for {scope}"
    message = f"`{package}` is not a known Python dependency{where}"
    return Issue(path, message, one_of(package, known) or "none are known here")


RULES = (known_libraries, known_python_packages)

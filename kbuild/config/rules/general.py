"""The `[general]` table: names, backends, addresses."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator

from kbuild.config.document import NAME, Context, Document
from kbuild.config.issue import Issue, KeyPath
from kbuild.config.suggest import listed, one_of
from kbuild.licences import spdx_doubt

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""`owner/name` on the Hub."""
GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
GIT_URL = re.compile(
    rf"(?:{'|'.join(re.escape(scheme) for scheme in GIT_SCHEMES)})://[^\s/]+/?\S*"
    r"|[\w.-]+@[\w.-]+:(?!//)\S+",
    re.ASCII,
)
"""A URL, or ssh's short form `user@host:path`."""
_NAME_HINT = "2 to 96 lower-case letters, digits and `-`, from a letter to a letter or digit"


def name(document: Document, _: Context) -> Iterator[Issue]:
    """`general.name` can be a repository's, a Python package's and a C symbol's name."""
    path = ("general", "name")
    text = document.text(*path)
    if text is None:
        return
    if not NAME.fullmatch(text):
        guess = re.sub(r"[\W_]+", "-", text.lower()).strip("-")
        hint = f"did you mean `{guess}`? " if NAME.fullmatch(guess) else ""
        yield Issue(path, f"`{text}` is not a kernel name", hint + _NAME_HINT)
    elif keyword.iskeyword(text.replace("-", "_")):
        message = f"`{text}` is a keyword of Python, and the package could not be imported"
        yield Issue(path, message, f"choose another name, e.g. `{text}-kernel`")


def version(document: Document, _: Context) -> Iterator[Issue]:
    """Versions are 0 or more."""
    for path in (("general", "version"), *_depend_versions(document)):
        value = document.get(*path)
        if type(value) is int and value < 0:
            yield Issue(path, f"is {value}, and versions are 0 or more")


def _depend_versions(document: Document) -> list[KeyPath]:
    return [(*path, "version") for path in kernel_depends(document)]


def licence(document: Document, _: Context) -> Iterator[Issue]:
    """A licence is named, as an SPDX expression (others are doubtful)."""
    path = ("general", "license")
    text = document.text(*path)
    if text is not None and not text.strip():
        yield Issue(path, "is empty", 'write the SPDX name, e.g. `license = "Apache-2.0"`')
    elif text is not None and (doubt := spdx_doubt(text)):
        yield Issue(path, *doubt, "warning")


def backends(document: Document, context: Context) -> Iterator[Issue]:
    """There is at least one backend, each known and listed once."""
    path = ("general", "backends")
    if document.get(*path) == []:
        yield Issue(path, "lists no backend", f"allowed: {listed(context.catalog.backends)}")
    seen = set()
    for place, backend in document.strings(*path):
        if backend not in context.catalog.backends:
            hint = one_of(backend, context.catalog.backends)
            yield Issue(place, f"`{backend}` is not a backend", hint)
        if backend in seen:
            yield Issue(place, f"`{backend}` is listed twice", "keep one of them")
        seen.add(backend)


def unused_backend_tables(document: Document, context: Context) -> Iterator[Issue]:
    """`[general.<backend>]` says something about a backend that is listed."""
    for backend in context.catalog.general_sections:
        path = ("general", backend)
        if isinstance(document.get(*path), dict) and backend not in document.backends():
            message = f"has no effect, because `{backend}` is not in general.backends"
            yield Issue(path, message, severity="warning")


def addresses(document: Document, _: Context) -> Iterator[Issue]:
    """`upstream` and `source` are git URLs."""
    hint = f"a URL with {listed(GIT_SCHEMES)}, or `user@host:path`"
    for key in ("upstream", "source"):
        text = document.text("general", key)
        if text is not None and not GIT_URL.fullmatch(text):
            yield Issue(("general", key), f"`{text}` is not a git URL", hint)


def repositories(document: Document, _: Context) -> Iterator[Issue]:
    """Every `repo-id` is `owner/name`."""
    for table in (("general", "hub"), *kernel_depends(document)):
        path = (*table, "repo-id")
        text = document.text(*path)
        if text is not None and not REPO_ID.fullmatch(text):
            message = f"`{text}` is not a Hub repository"
            yield Issue(path, message, "write `owner/name`")


def kernel_depends_pins(document: Document, _: Context) -> Iterator[Issue]:
    """A kernel dependency has a version or a revision, not both and not neither."""
    for path in kernel_depends(document):
        given = [key for key in ("version", "revision") if key in document.table(*path)]
        if len(given) != 1:
            words = "has both `version` and `revision`" if given else "has no version"
            yield Issue(path, words, "give exactly one of `version` and `revision`")


def kernel_depends(document: Document) -> Iterator[KeyPath]:
    """Paths of all kernel dependencies, also those of single backends."""
    general = document.table("general")
    scopes = [key for key, value in general.items() if isinstance(value, dict)]
    for scope in ((), *((key,) for key in scopes)):
        path = ("general", *scope, "kernel-depends")
        for index, item in enumerate(document.items(*path)):
            if isinstance(item, dict):
                yield (*path, index)


RULES = (
    name,
    version,
    licence,
    backends,
    unused_backend_tables,
    addresses,
    repositories,
    kernel_depends_pins,
)

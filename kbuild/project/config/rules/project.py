"""Rules for the table `[general]` and for `[torch]`, `[torch-noarch]` or `[tvm-ffi]`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import Any

from kbuild.project.config.document import NAME, Document
from kbuild.project.config.issue import Issue, KeyPath, closest, listed, one_of, toml_type
from kbuild.project.config.model import BuildFile
from kbuild.project.config.rules.context import RuleContext
from kbuild.project.licences import spdx_doubt
from kbuild.system.version import Version

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""`owner/name` on the Hub."""
GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
GIT_URL = re.compile(
    rf"(?:{'|'.join(re.escape(scheme) for scheme in GIT_SCHEMES)})://[^\s/]+/?\S*"
    r"|[\w.-]+@[\w.-]+:(?!//)\S+",
    re.ASCII,
)
"""A URL, or ssh's short form `user@host:path`."""
CLIENT_RELEASE = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
"""A release of the `kernels` client, which reads no other form."""
_NAME_HINT = "2 to 96 lower-case letters, digits and `-`, from a letter to a letter or digit"


def kernel_name(document: Document, _: RuleContext) -> Iterator[Issue]:
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


def kernel_version(document: Document, _: RuleContext) -> Iterator[Issue]:
    """Versions are 0 or more."""
    depends = ((*path, "version") for path in kernel_depends(document))
    for path in (("general", "version"), *depends):
        value = document.get(*path)
        if type(value) is int and value < 0:
            yield Issue(path, f"is {value}, and versions are 0 or more")


def client_release(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`general.kernels-minver` has three parts."""
    path = ("general", "kernels-minver")
    text = document.text(*path)
    if text is not None and not CLIENT_RELEASE.fullmatch(text):
        yield Issue(path, f"`{text}` is not a release of `kernels`", "write three parts: `0.17.0`")


def kernel_licence(document: Document, _: RuleContext) -> Iterator[Issue]:
    """A licence is named, as an SPDX expression (others are doubtful)."""
    path = ("general", "license")
    text = document.text(*path)
    if text is not None and not text.strip():
        yield Issue(path, "is empty", 'write the SPDX name, e.g. `license = "Apache-2.0"`')
    elif text is not None and (doubt := spdx_doubt(text)):
        yield Issue(path, *doubt, "warning")


def general_backends(document: Document, context: RuleContext) -> Iterator[Issue]:
    """There is at least one backend, each known and listed once."""
    path = ("general", "backends")
    if document.get(*path) == []:
        yield Issue(path, "lists no backend", f"allowed: {listed(context.catalog.backends)}")
    seen = set()
    for place, backend in document.strings(*path):
        if backend not in context.catalog.backends:
            hint = one_of(backend, context.catalog.backends, context.catalog.other_names)
            yield Issue(place, f"`{backend}` is not a backend", hint)
        if backend in seen:
            yield Issue(place, f"`{backend}` is listed twice", "keep one of them")
        seen.add(backend)


def unused_backend_tables(document: Document, context: RuleContext) -> Iterator[Issue]:
    """`[general.<backend>]` says something about a backend that is listed."""
    for backend in context.catalog.general_sections:
        path = ("general", backend)
        if isinstance(document.get(*path), dict) and backend not in document.backends():
            message = f"has no effect, because `{backend}` is not in general.backends"
            yield Issue(path, message, severity="warning")


def addresses(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`upstream` and `source` are git URLs."""
    hint = f"a URL with {listed(GIT_SCHEMES)}, or `user@host:path`"
    for key in ("upstream", "source"):
        text = document.text("general", key)
        if text is not None and not GIT_URL.fullmatch(text):
            yield Issue(("general", key), f"`{text}` is not a git URL", hint)


def repositories(document: Document, _: RuleContext) -> Iterator[Issue]:
    """Every `repo-id` is `owner/name`."""
    for table in (("general", "hub"), *kernel_depends(document)):
        path = (*table, "repo-id")
        text = document.text(*path)
        if text is not None and not REPO_ID.fullmatch(text):
            yield Issue(path, f"`{text}` is not a Hub repository", "write `owner/name`")


def kernel_depends_pins(document: Document, _: RuleContext) -> Iterator[Issue]:
    """A kernel dependency has a version or a revision, not both and not neither."""
    for path in kernel_depends(document):
        keys = [key for key in ("version", "revision") if key in document.table(*path)]
        if len(keys) != 1:
            message = "has both `version` and `revision`" if keys else "has no version"
            yield Issue(path, message, "give exactly one of `version` and `revision`")


def kernel_depends(document: Document) -> Iterator[KeyPath]:
    """Paths of all kernel dependencies, also those of single backends."""
    general = document.table("general")
    scopes = [key for key, value in general.items() if isinstance(value, dict)]
    for scope in ((), *((key,) for key in scopes)):
        path = ("general", *scope, "kernel-depends")
        for index, item in enumerate(document.items(*path)):
            if isinstance(item, dict):
                yield (*path, index)


GENERAL_RULES = (
    kernel_name, kernel_version, client_release, kernel_licence, general_backends,
    unused_backend_tables, addresses, repositories, kernel_depends_pins,
)  # fmt: skip


_STABLE_ABI: KeyPath = ("torch", "stable-abi")
_STABLE_ABI_HINT = 'a version, e.g. `stable-abi = "2.11"`, or a version for each backend'
_TABLES = listed(f"[{key}]" for key in BuildFile.frameworks)


def exactly_one(document: Document, _: RuleContext) -> Iterator[Issue]:
    """There is one framework table, and only one."""
    present = document.frameworks()
    for key in present[1:]:
        message = f"a project has one framework, and `[{present[0]}]` is there already"
        yield Issue((key,), message, f"keep one of {listed(f'[{name}]' for name in present)}")
    known = {"general", "kernel"}
    misspelt = (closest(key, BuildFile.frameworks) for key in document.data if key not in known)
    if not present and not any(misspelt):
        yield Issue((), "there is no framework table", f"add one of {_TABLES}")


def noarch_has_no_kernels(document: Document, _: RuleContext) -> Iterator[Issue]:
    """A `[torch-noarch]` project has no `[kernel.*]` sections."""
    if document.frameworks() == ["torch-noarch"] and document.table("kernel"):
        message = "`[torch-noarch]` ships Python files only, and nothing would compile the kernels"
        yield Issue(("kernel",), message, "use `[torch]`, or remove the `[kernel.*]` sections")


def tvm_ffi_has_sources(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`[tvm-ffi]` lists sources, unless every kernel is in a DSL: their functions are generated."""
    dsl_sections = document.in_dsls()
    if document.frameworks() != ["tvm-ffi"] or "src" in document.table("tvm-ffi"):
        return
    if not dsl_sections or len(dsl_sections) < len(document.table("kernel")):
        hint = "list the sources that export the functions"
        yield Issue(("tvm-ffi", "src"), "is missing", hint)


def noarch_spellings(document: Document, _: RuleContext) -> Iterator[Issue]:
    """Keys of `[torch-noarch]` are spelt one way at a time: older tools wrote `rocm_archs`."""
    table = document.table("torch-noarch")
    for key in table:
        kebab = key.replace("_", "-")
        if kebab != key and kebab in table:
            yield Issue(
                ("torch-noarch", key),
                f"is the same key as `{kebab}`",
                "keep one of them",
                is_about_key=True,
            )


def version_bounds(document: Document, context: RuleContext) -> Iterator[Issue]:
    """No `minver` is above its `maxver`."""
    tables = [("torch",), *(("general", backend) for backend in context.catalog.general_sections)]
    for table in tables:
        oldest, newest = (_version(document.get(*table, key)) for key in ("minver", "maxver"))
        if oldest is not None and newest is not None and oldest > newest:
            message = f"is {oldest}, above maxver {newest}, so nothing would be built"
            yield Issue((*table, "minver"), message, "both bounds are inclusive")


def torch_bounds_are_rarely_right(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`torch.minver` and `torch.maxver` are left out, since they drop variants that users need."""
    for key in ("minver", "maxver"):
        if document.text("torch", key) is not None:
            message = "leaves out Torch releases that users may have"
            hint = "remove it unless the kernel cannot be compiled for them"
            yield Issue(("torch", key), message, hint, "warning")


def stable_abi(document: Document, context: RuleContext) -> Iterator[Issue]:
    """The stable-ABI floor is a version, or a version for each backend."""
    value = document.get(*_STABLE_ABI)
    if value is None or (isinstance(value, str) and _version(value)):
        return
    if isinstance(value, dict):
        yield from _stable_abi_table(document, context, value)
    else:
        yield Issue(_STABLE_ABI, _not_a_version(value), _STABLE_ABI_HINT)


def _stable_abi_table(
    document: Document, context: RuleContext, table: dict[str, Any]
) -> Iterator[Issue]:
    if not table:
        yield Issue(_STABLE_ABI, "names no backend", _STABLE_ABI_HINT)
    for backend, value in table.items():
        path = (*_STABLE_ABI, backend)
        if backend not in context.catalog.backends:
            hint = one_of(backend, context.catalog.backends, context.catalog.other_names)
            message = f"`{backend}` is not a backend"
            yield Issue(path, message, hint, is_about_key=True)
        elif backend not in document.backends():
            message = f"has no effect, because `{backend}` is not in general.backends"
            yield Issue(path, message, severity="warning")
        if _version(value) is None:
            yield Issue(path, _not_a_version(value), 'write e.g. `"2.11"`')


def _not_a_version(value: Any) -> str:
    if isinstance(value, str):
        return f"`{value}` is not a version"
    return f"must be a version in quotes, not {toml_type(value)}"


def extensions(document: Document, _: RuleContext) -> Iterator[Issue]:
    """`pyext` holds extensions, not patterns."""
    for framework in BuildFile.frameworks:
        for path, extension in document.strings(framework, "pyext"):
            bare = extension.lstrip("*.")
            if extension != bare or not bare or set(bare) & set("/\\*?["):
                hint = f"write `{bare}`" if bare.isalnum() else "letters and digits, e.g. `json`"
                yield Issue(path, f"`{extension}` is not a file extension", hint)


def _version(value: Any) -> Version | None:
    try:
        return Version.parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


FRAMEWORK_RULES = (
    exactly_one, noarch_has_no_kernels, tvm_ffi_has_sources, noarch_spellings, version_bounds,
    torch_bounds_are_rarely_right, stable_abi, extensions,
)  # fmt: skip

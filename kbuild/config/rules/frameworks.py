"""The framework table: exactly one of `[torch]`, `[torch-noarch]` and `[tvm-ffi]`, and its keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue, KeyPath
from kbuild.config.model import BuildFile
from kbuild.config.suggest import closest, listed, one_of, toml_type
from kbuild.version import Version

_STABLE_ABI: KeyPath = ("torch", "stable-abi")
_STABLE_ABI_HINT = 'a version, e.g. `stable-abi = "2.11"`, or a version for each backend'
_TABLES = listed(f"[{key}]" for key in BuildFile.frameworks)


def exactly_one(document: Document, _: Context) -> Iterator[Issue]:
    """There is one framework table, and only one."""
    present = document.frameworks()
    for key in present[1:]:
        message = f"a project has one framework, and `[{present[0]}]` is there already"
        yield Issue((key,), message, f"keep one of {listed(f'[{name}]' for name in present)}")
    known = {"general", "kernel"}
    misspelt = (closest(key, BuildFile.frameworks) for key in document.data if key not in known)
    if not present and not any(misspelt):
        yield Issue((), "there is no framework table", f"add one of {_TABLES}")


def noarch_has_no_kernels(document: Document, _: Context) -> Iterator[Issue]:
    """A `[torch-noarch]` project has no `[kernel.*]` sections."""
    if document.frameworks() == ["torch-noarch"] and document.table("kernel"):
        message = "`[torch-noarch]` ships Python files only, and nothing would compile the kernels"
        yield Issue(("kernel",), message, "use `[torch]`, or remove the `[kernel.*]` sections")


def tvm_ffi_has_sources(document: Document, _: Context) -> Iterator[Issue]:
    """`[tvm-ffi]` lists sources, unless every kernel is in a DSL: their functions are generated."""
    foreign = document.in_dsls()
    if document.frameworks() != ["tvm-ffi"] or "src" in document.table("tvm-ffi"):
        return
    if not foreign or len(foreign) < len(document.table("kernel")):
        hint = "list the sources that export the functions"
        yield Issue(("tvm-ffi", "src"), "is missing", hint)


def noarch_spellings(document: Document, _: Context) -> Iterator[Issue]:
    """Keys of `[torch-noarch]` are spelt one way at a time: older tools wrote `rocm_archs`."""
    table = document.table("torch-noarch")
    for key in table:
        kebab = key.replace("_", "-")
        if kebab != key and kebab in table:
            yield Issue(("torch-noarch", key), f"is the same key as `{kebab}`", "keep one of them")


def bounds(document: Document, context: Context) -> Iterator[Issue]:
    """No `minver` is above its `maxver`."""
    tables = [("torch",), *(("general", backend) for backend in context.catalog.general_sections)]
    for table in tables:
        oldest, newest = (_version(document.get(*table, key)) for key in ("minver", "maxver"))
        if oldest is not None and newest is not None and oldest > newest:
            message = f"is {oldest}, above maxver {newest}, so nothing would be built"
            yield Issue((*table, "minver"), message, "both bounds are inclusive")


def torch_bounds_are_rarely_right(document: Document, _: Context) -> Iterator[Issue]:
    """`torch.minver` and `torch.maxver` are left out, since they drop variants that users need."""
    for key in ("minver", "maxver"):
        if document.text("torch", key) is not None:
            message = "leaves out Torch releases that users may have"
            hint = "remove it unless the kernel cannot be compiled for them"
            yield Issue(("torch", key), message, hint, "warning")


def stable_abi(document: Document, context: Context) -> Iterator[Issue]:
    """The stable-ABI floor is a version, or a version for each backend."""
    value = document.get(*_STABLE_ABI)
    if value is None or (isinstance(value, str) and _version(value)):
        return
    if isinstance(value, dict):
        yield from _stable_abi_table(document, context, value)
    else:
        yield Issue(_STABLE_ABI, _not_a_version(value), _STABLE_ABI_HINT)


def _stable_abi_table(
    document: Document, context: Context, table: dict[str, Any]
) -> Iterator[Issue]:
    if not table:
        yield Issue(_STABLE_ABI, "names no backend", _STABLE_ABI_HINT)
    for backend, value in table.items():
        path = (*_STABLE_ABI, backend)
        if backend not in context.catalog.backends:
            hint = one_of(backend, context.catalog.backends)
            yield Issue(path, f"`{backend}` is not a backend", hint)
        elif backend not in document.backends():
            message = f"has no effect, because `{backend}` is not in general.backends"
            yield Issue(path, message, severity="warning")
        if _version(value) is None:
            yield Issue(path, _not_a_version(value), 'write e.g. `"2.11"`')


def _not_a_version(value: Any) -> str:
    if isinstance(value, str):
        return f"`{value}` is not a version"
    return f"must be a version in quotes, not {toml_type(value)}"


def extensions(document: Document, _: Context) -> Iterator[Issue]:
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


RULES = (
    exactly_one,
    noarch_has_no_kernels,
    tvm_ffi_has_sources,
    noarch_spellings,
    bounds,
    torch_bounds_are_rarely_right,
    stable_abi,
    extensions,
)

"""`[kernel.*]` sections in a Python DSL: their language, their backends, their ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.config.model import CXX, Refuses
from kbuild.config.suggest import listed, one_of
from kbuild.version import Version

if TYPE_CHECKING:
    from kbuild.languages.schema import Schema

_BOXED = Version.parse("2.10")
"""The release of Torch whose stable ABI passes strings, lists and devices."""


def languages(document: Document, context: Context) -> Iterator[Issue]:
    """A kernel's language is one that kbuild can build, and its ops are described well."""
    foreign = document.in_dsls()
    if not foreign:
        return
    from kbuild.languages.spec import DIALECTS, read_section

    for name, section in foreign.items():
        path = ("kernel", name, "language")
        language = section["language"]
        if language not in DIALECTS:
            hint = one_of(language, (CXX, *DIALECTS))
            yield Issue(path, f"`{language}` is not a language", hint)
            continue
        refuses = context.catalog.language(language)
        if refuses is None:
            known = (name for name in DIALECTS if context.catalog.language(name))
            hint = f"this version builds {listed(sorted((CXX, *known)))}"
            yield Issue(path, f"kbuild cannot build `{language}` kernels yet", hint)
        yield from _backends(name, language, document, context)
        yield from _unknown_keys(name, section, document, context)
        issues = read_section(name, section).issues
        yield from issues
        if refuses and not any(issue.path[2:3] == ("toolchain",) for issue in issues):
            yield from _toolchain(name, document, refuses)


def fallbacks(document: Document, _: Context) -> Iterator[Issue]:
    """Functions for TVM-FFI do not fall back on their DSL: what would run there is Torch's."""
    if document.frameworks() != ["tvm-ffi"]:
        return
    for name in document.in_dsls():
        for index, _op in enumerate(document.items("kernel", name, "op")):
            path = ("kernel", name, "op", index, "fallback")
            if document.get(*path) == "jit":
                message = "runs the DSL on tensors of Torch, and this project is one for TVM-FFI"
                yield Issue(path, message, "leave it out, or use `[torch]`")


def passed(document: Document, _: Context) -> Iterator[Issue]:
    """Ops take strings, lists, devices from Torch 2.10 on; TVM-FFI has no devices and no None."""
    for_ffi = document.frameworks() == ["tvm-ffi"]
    floor = document.get("torch", "stable-abi")
    floors = [one for one in (floor.values() if isinstance(floor, dict) else [floor]) if one]
    old = [one for one in floors if _is_below(str(one), _BOXED)]
    for name in document.in_dsls() if for_ffi or old else ():
        for index, _op in enumerate(document.items("kernel", name, "op")):
            path = ("kernel", name, "op", index, "schema")
            schema = _schema(document.text(*path))
            if schema is None:
                continue
            if for_ffi and any(one.type.is_optional for one in schema.returns):
                message = "a result that may be None cannot be returned through TVM-FFI"
                yield Issue(path, message, "return an empty tensor, or use `[torch]`")
            devices = [one for one in schema.arguments if one.type.name == "Device"]
            if for_ffi and devices:
                hint = "leave it out: an op runs where its tensors are; or use `[torch]`"
                yield Issue(path, f"`{devices[0]}` cannot be passed through TVM-FFI", hint)
            arguments = schema.arguments
            boxed = [a for a in arguments if a.type.is_list or a.type.name in {"str", "Device"}]
            if old and boxed:
                message = f"`{boxed[0]}` is not passed by the stable ABI of Torch {old[0]}"
                yield Issue(path, message, f'write `stable-abi = "{_BOXED}"` or later in `[torch]`')


def _is_below(text: str, floor: Version) -> bool:
    try:
        return Version.parse(text) < floor
    except ValueError:
        return False


def _schema(text: str | None) -> Schema | None:
    from kbuild.languages.schema import SchemaError, parse_schema

    try:
        return parse_schema(text) if text is not None else None
    except SchemaError:
        return None


def _toolchain(name: str, document: Document, refuses: Refuses) -> Iterator[Issue]:
    path = ("kernel", name, "toolchain")
    one = document.text(*path)
    pins = [one] if one is not None else [pin for _, pin in document.strings(*path)]
    reason = refuses(pins) if pins else None
    if reason is not None:
        what, _, hint = reason.partition("; ")
        yield Issue(path, what, hint)


def _backends(name: str, language: str, document: Document, context: Context) -> Iterator[Issue]:
    from kbuild.languages.spec import DIALECTS

    on_cpu = DIALECTS[language].on_cpu
    able = [one for one in context.catalog.language_backends if on_cpu or one != "cpu"]
    named = document.backends_of(name)
    if document.get("kernel", name, "backend") == []:
        yield Issue(("kernel", name, "backend"), "lists no backend", f"one of {listed(able)}")
    for position, (path, backend) in enumerate(named):
        if backend in context.catalog.kernel_sections and backend not in able:
            message = f"kernels for `{backend}` are not written in `{language}`"
            yield Issue(path, message, f"backends with such kernels: {listed(able)}")
        if backend in [other for _, other in named[:position]]:
            yield Issue(path, f"`{backend}` is listed twice", "keep one of them")
    for index, value in enumerate(document.items("kernel", name, "backend")):
        if not isinstance(value, str):
            yield Issue(("kernel", name, "backend", index), "must be a string")


def _unknown_keys(
    name: str, section: Mapping[str, Any], document: Document, context: Context
) -> Iterator[Issue]:
    from kbuild.config.languages import LanguageKeys
    from kbuild.config.violations import keys_of

    backends = {backend for _, backend in document.backends_of(name)}
    able = [one for one in context.catalog.language_backends if one in backends or not backends]
    known_archs = context.catalog.arch_keys
    arch_keys = [known_archs[backend][0] for backend in able if backend in known_archs]
    known = {"backend", *arch_keys, *keys_of(LanguageKeys)}
    for key in section.keys() - known:
        yield Issue(("kernel", name, key), "unknown key", f"allowed: {listed(sorted(known))}")


RULES = (languages, fallbacks, passed)

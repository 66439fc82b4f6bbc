"""`[kernel.*]` sections in a Python DSL: their language, their backends, their ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.config.model import CXX, Refuses
from kbuild.config.suggest import listed, one_of


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


RULES = (languages, fallbacks)

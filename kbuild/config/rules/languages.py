"""`[kernel.*]` sections in a Python DSL: checked in full, although nothing builds them yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.config.document import CXX, Context, Document
from kbuild.config.issue import Issue
from kbuild.config.suggest import listed, one_of


def languages(document: Document, context: Context) -> Iterator[Issue]:
    """A kernel's language is one that kbuild can build, and its ops are described well."""
    foreign = document.in_dsls(context.catalog)
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
        hint = f"this version builds `{CXX}`; it checks such a section and goes no further"
        yield Issue(path, f"kbuild cannot build `{language}` kernels yet", hint)
        yield from _unknown_keys(name, section, context)
        yield from read_section(name, section).issues


def _unknown_keys(name: str, section: Mapping[str, Any], context: Context) -> Iterator[Issue]:
    from kbuild.config.languages import LanguageKeys
    from kbuild.config.violations import keys_of

    backend = section["backend"]
    arch_keys = context.catalog.arch_keys.get(backend, ())[:1]
    known = {"backend", *arch_keys, *keys_of(LanguageKeys)}
    for key in section.keys() - known:
        yield Issue(("kernel", name, key), "unknown key", f"allowed: {listed(sorted(known))}")


RULES = (languages,)

"""Finds the declarations of a function among the tokens of a C++ source."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from kbuild.sources.cxx import CxxToken, closing_sign, read_cxx

_ATTRIBUTES = ("__attribute__", "__declspec", "alignas")
_UNKNOWN_MACRO = re.compile(r".*VERSION|(?:TORCH|AT|C10|CUDA|USE|__CUDA|__HIP|__cpp)_?")
"""Macros that headers define, or compilers of device code."""


def compiled_tokens(text: str, macros: Collection[str]) -> Sequence[CxxToken]:
    """The tokens that are compiled when these macros are defined, and no others of the text."""
    names = {word for word in re.findall(r"[A-Za-z_]\w*", text) if not _UNKNOWN_MACRO.match(word)}
    return read_cxx(text, *macros, undefined=names)


def declarations_of(
    tokens: Iterable[CxxToken], name: str, *, in_namespaces: bool
) -> Iterator[tuple[Sequence[CxxToken], int]]:
    """Statements that declare or define `name` at the top level, and where it is in them.

    Blocks of `extern "C"` and of unnamed namespaces belong to the top level.
    """
    qualifier, _, base = name.rpartition("::")
    statement: list[CxxToken] = []
    blocks: list[str | None] = []
    """The namespace of each open brace, empty for one that belongs to the scope around it."""
    depth = 0
    for token in tokens:
        depth += (token.text in "([") - (token.text in ")]")
        if token.text in ("{", "}", ";") and depth <= 0:
            around = "::".join(part for part in blocks if part)
            is_seen = token.text != "}" and None not in blocks
            if in_namespaces:
                is_meant = not qualifier or f"::{around}".endswith(f"::{qualifier}")
            else:
                is_meant = not around and not qualifier
            if is_seen and is_meant:
                statement = _without_attributes(statement)
                at = _name_at(statement, base)
                if at is not None:
                    yield statement, at
            if token.text == "{":
                blocks.append(_opened_namespace([part.text for part in statement]))
            elif token.text == "}" and blocks:
                blocks.pop()
            statement = []
        else:
            statement.append(token)


def _opened_namespace(texts: Sequence[str]) -> str | None:
    """The name of a namespace that is opened; None for other braces."""
    if texts[:1] == ["inline"]:
        texts = texts[1:]
    if texts[:1] == ["namespace"]:
        return "".join(texts[1:])
    return "" if list(texts) == ["extern", '"C"'] else None


def _without_attributes(statement: Sequence[CxxToken]) -> list[CxxToken]:
    """The statement without `[[nodiscard]]`, `__attribute__((...))` and the like."""
    kept: list[CxxToken] = []
    at = 0
    while at < len(statement):
        texts = [token.text for token in statement[at : at + 2]]
        if texts == ["[", "["]:
            at = closing_sign(statement, at, "[]")
        elif texts[0] in _ATTRIBUTES:
            at = closing_sign(statement, at + 1)
        else:
            kept.append(statement[at])
        at += 1
    return kept


def _name_at(statement: Sequence[CxxToken], name: str) -> int | None:
    """The index where the statement declares the function, after a type and before parentheses."""
    depth = 0
    for at, token in enumerate(statement):
        if token.text == "(" and depth == 0 and at >= 2:  # noqa: PLR2004 - type and name
            before, kind = statement[at - 1], statement[at - 2]
            is_type = kind.kind == "name" or kind.text in (">", "*", "&", "&&")
            if before.text == name and is_type and kind.text not in ("return", "new", "typedef"):
                return at - 1
        depth += (token.text in "([") - (token.text in ")]")
        # A name behind an assignment is called, not declared.
        if token.text == "=" and depth == 0:
            return None
    return None


def is_reference(tokens: Sequence[CxxToken]) -> bool:
    """True for a reference through which a caller's value is changed."""
    texts = [token.text for token in tokens]
    depths = list(accumulate((text == "<") - (text == ">") for text in texts))
    outer = [text for text, depth in zip(texts, depths, strict=True) if depth == 0]
    return "&" in outer and "const" not in outer

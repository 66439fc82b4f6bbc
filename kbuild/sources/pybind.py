"""Functions that a `PYBIND11_MODULE` binds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbuild.sources.cxx import (
    CxxToken,
    closing_sign,
    joined_tokens,
    split_tokens,
    tokens_of,
)


class PybindFunction(NamedTuple):
    """One function that a module binds."""

    name: str
    """Name in Python."""
    target: str
    """The C++ function, as it is written."""
    doc: str
    arguments: tuple[tuple[str, str], ...]
    """Name and default of each `py::arg`; an empty default where there is none."""
    line: int = 0


@dataclass(frozen=True)
class PybindModule:
    """The functions of a `PYBIND11_MODULE`, and the text around it."""

    functions: tuple[PybindFunction, ...]
    others: tuple[tuple[int, str], ...]
    """Line and text of what is no function; docstrings of the module left out."""
    before: str
    after: str
    height: int
    """Line breaks between both."""


def read_pybind_module(text: str) -> PybindModule | None:
    """The first module of a source; None when there is none."""
    tokens = tokens_of(text)
    start = next((at for at, part in enumerate(tokens) if part.text == "PYBIND11_MODULE"), None)
    if start is None:
        return None
    opening = next((at for at in range(start, len(tokens)) if tokens[at].text == "{"), len(tokens))
    end = closing_sign(tokens, opening, "{}")
    functions, others = [], []
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for statement in filter(None, split_tokens(tokens[opening + 1 : end], ";")):
        bound = [_pybind_function(call) for call in _calls(statement)]
        known = [function for function in bound if function is not None]
        if known and len(known) == len(bound):
            functions += known
        elif [token.text for token in statement[1:3]] != [".", "doc"]:
            opens, closes = statement[0], statement[-1]
            stop = starts[closes.line - 1] + closes.column - 1 + len(closes.text)
            written = text[starts[opens.line - 1] + opens.column - 1 : stop]
            others.append((statement[0].line, " ".join(written.split())))
    first, last = tokens[start], tokens[min(end, len(tokens) - 1)]
    return PybindModule(
        tuple(functions),
        tuple(others),
        text[: starts[first.line - 1] + first.column - 1],
        text[starts[last.line - 1] + last.column :],
        last.line - first.line,
    )


def _calls(statement: Sequence[CxxToken]) -> Iterator[Sequence[CxxToken]]:
    """`def(...)` and `def(...)` of `m.def(...).def(...)`; nothing of other statements."""
    at, calls = 1, []
    while at < len(statement):
        after = closing_sign(statement, at + 2) + 1
        if [token.text for token in statement[at : at + 3 : 2]] != [".", "("]:
            return
        calls.append(statement[at + 1 : after])
        at = after
    yield from calls


def _pybind_function(call: Sequence[CxxToken]) -> PybindFunction | None:
    """The function that `def("name", &function, ...)` binds; None for other calls."""
    arguments = list(split_tokens(call[2:-1], ","))
    if call[0].text != "def" or len(arguments) < 2 or arguments[0][0].kind != "string":  # noqa: PLR2004
        return None
    target = joined_tokens(arguments[1]).removeprefix("&")
    if re.fullmatch(r"(?:::)?\w+(?:::\w+)*", target) is None:
        return None
    docs, labelled = [], []
    for part in arguments[2:]:
        named, *default = split_tokens(part, "=")
        label = next((token.text[1:-1] for token in named if token.kind == "string"), "")
        texts = [token.text for token in named]
        if texts[-1:] == ["_a"] or "arg" in texts:
            labelled.append((label, joined_tokens(default[0]) if default else ""))
        elif "arg_v" in texts:  # `py::arg_v("x", 1, "text")`
            values = list(split_tokens(named[texts.index("(") + 1 : -1], ","))
            labelled.append((label, joined_tokens(values[1])))
        elif named[0].kind == "string":  # not `py::call_guard<...>()` and the like
            docs.append(label)
    name = arguments[0][0]
    return PybindFunction(name.text[1:-1], target, (docs or [""])[0], tuple(labelled), name.line)

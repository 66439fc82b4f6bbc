"""What the names of one source mean: using declarations, own macros, and which names are tensors.

Read without a compiler, so by what declarations usually look like. A name that is not recognised as
a tensor leads to a use that is not reported, never to one that is made up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kbuild.advice.table import Table
from kbuild.advice.tokens import Token

_DECORATION = ("&", "*", "const", "__restrict__", "&&")
_END = Token("sign", "", 0, 0)


def at(words: Sequence[Token], index: int) -> Token:
    """The token at a place; an empty one outside of the text."""
    return words[index] if 0 <= index < len(words) else _END


def qualified(found: Iterable[Token]) -> tuple[Token, ...]:
    """The tokens, with `a::b::c` and `::a::b::c` as one name `a::b::c` each.

    A `::` belongs to the name that it touches: `return ::at::empty(n)` has two names.
    """
    words: list[Token] = []
    before, joins = _END, False
    for token in found:
        if token.text == "::":
            joins = before.kind == "name" and _touch(before, token)
        elif joins and token.kind == "name":
            first = words.pop()
            text = f"{first.text}::{token.text}"
            words.append(Token("name", text, first.line, first.column))
        else:
            words.append(token)
        before, joins = token, joins and token.text == "::"
    return tuple(words)


def _touch(left: Token, right: Token) -> bool:
    return (left.line, left.column + len(left.text)) == (right.line, right.column)


@dataclass(frozen=True)
class Vocabulary:
    """What a source and the project headers that it includes declare."""

    imported: Mapping[str, str]
    """`using at::Tensor`: the short name -> the whole one."""
    namespaces: frozenset[str]
    """`using namespace at`."""
    macros: frozenset[str]
    """What the project defines itself."""
    tensors: frozenset[str]
    """Variables, members and functions of a tensor type."""

    def meaning(self, name: str, table: Table) -> str:
        """The qualified name that a name stands for, as far as the table knows it."""
        if name in self.imported:
            return self.imported[name]
        spelled = (f"{space}::{name}" for space in sorted(self.namespaces))
        return next((full for full in spelled if table.listed(full)), name)


@dataclass(frozen=True)
class FileNames:
    """What one file says of names, whatever file includes it."""

    words: Sequence[Token]
    """Qualified tokens."""
    includes: tuple[str, ...]
    imported: tuple[tuple[str, str], ...]
    namespaces: frozenset[str]
    macros: frozenset[str]
    typed: tuple[tuple[str, str], ...]
    """`Tensor x`: each type as it is written that may be a tensor's, and what has it."""
    deduced: tuple[tuple[str, int], ...]
    """`auto y = ...;`: the name, and the index of the last token of its value."""


def file_names(words: Sequence[Token], table: Table) -> FileNames:
    """The names of one file, given its qualified tokens."""
    return FileNames(
        words,
        tuple(dict.fromkeys(word.text for word in words if word.kind == "include")),
        tuple(_imports(words)),
        frozenset(_namespaces(words)),
        frozenset(_macros(words)),
        tuple(dict.fromkeys(_declared(words, table))),
        tuple(_deduced(words)),
    )


def vocabulary(files: Sequence[FileNames], table: Table) -> Vocabulary:
    """The vocabulary of a source and its headers, source first."""
    imported = dict(chain.from_iterable(file.imported for file in reversed(files)))
    spaces = frozenset(chain.from_iterable(file.namespaces for file in files))
    macros = frozenset(chain.from_iterable(file.macros for file in files))
    names = Vocabulary(imported, spaces, macros, frozenset())
    tensors = {
        name
        for file in files
        for written, name in file.typed
        if names.meaning(written, table) in table.tensor_types
    }
    for file in files:
        for name, end in file.deduced:
            if is_tensor(file.words, end, tensors, table):
                tensors.add(name)
    return Vocabulary(imported, spaces, macros, frozenset(tensors))


def is_tensor(words: Sequence[Token], end: int, tensors: Collection[str], table: Table) -> bool:
    """Whether the expression that ends at `end` is a tensor: its name, or a call that gives one.

    Args:
        words: qualified tokens.
        end: index of the last token of the expression.
        tensors: what is known to be one.
        table: knows the operators.
    """
    if at(words, end).text != ")":
        return at(words, end).text in tensors
    called = _opening(words, end) - 1
    name = at(words, called).text
    if at(words, called - 1).text in {".", "->"}:
        return _returns_tensor(name, table) and is_tensor(words, called - 2, tensors, table)
    space, _, operator = name.rpartition("::")
    return name in tensors or (space in {"at", "torch"} and _returns_tensor(operator, table))


def _returns_tensor(operator: str, table: Table) -> bool:
    if operator in table.operators:
        return operator != "item"
    entry = table.name(f"at::{operator}")
    return entry is not None and (entry.stable or "").startswith("torch::stable::")


def _opening(words: Sequence[Token], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += {")": 1, "(": -1}.get(words[index].text, 0)
        if not depth:
            return index
    return 0


def _imports(words: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        if word.text == "using" and "::" in at(words, index + 1).text:
            full = words[index + 1].text
            yield full.rpartition("::")[2], full


def _namespaces(words: Sequence[Token]) -> Iterator[str]:
    for index, word in enumerate(words):
        if word.text == "namespace" and at(words, index - 1).text == "using":
            yield at(words, index + 1).text


def _macros(words: Sequence[Token]) -> Iterator[str]:
    for index, word in enumerate(words):
        if word.text == "define" and at(words, index - 1).text == "#":
            yield at(words, index + 1).text


def _declared(words: Sequence[Token], table: Table) -> Iterator[tuple[str, str]]:
    """`at::Tensor x`, `const Tensor &x`, `Tensor f(...)`."""
    types = {name.rpartition("::")[2] for name in table.tensor_types}
    for index, word in enumerate(words):
        if word.kind == "name" and word.text.rpartition("::")[2] in types:
            after = index + 1
            while at(words, after).text in _DECORATION:
                after += 1
            if at(words, after).kind == "name":
                yield word.text, words[after].text


def _deduced(words: Sequence[Token]) -> Iterator[tuple[str, int]]:
    for index, word in enumerate(words):
        name = at(words, index - 1)
        if word.text != "=" or name.kind != "name" or not _is_auto(words, index - 2):
            continue
        end = index
        while end + 1 < len(words) and words[end + 1].text != ";":
            end += 1
        yield name.text, end


def _is_auto(words: Sequence[Token], index: int) -> bool:
    while at(words, index).text in _DECORATION:
        index -= 1
    return at(words, index).text == "auto"

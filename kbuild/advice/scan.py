"""The non-stable uses in one source file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kbuild.advice.table import Entry, Table
from kbuild.advice.tokens import Token
from kbuild.advice.vocabulary import Vocabulary, at, is_tensor
from kbuild.version import Version

IsProjectHeader = Callable[[str], bool]
_MEMBER = (".", "->")


@dataclass(frozen=True)
class Use:
    """One place where a source needs Torch's C++ API."""

    file: str
    line: int
    column: int
    text: str
    """What is used, as the source means it: `at::Tensor`, `<ATen/ATen.h>`, `.contiguous()`."""
    entry: Entry

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def to_json(self) -> dict[str, object]:
        """The use as a JSON object."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "use": self.text,
            "kind": self.entry.kind,
            "stable": self.entry.stable,
            "since": str(self.entry.since) if self.entry.since else None,
            "header": self.entry.source or None,
            "note": self.entry.note or None,
        }


@dataclass(frozen=True)
class Demand:
    """A place that is stable already and needs a certain Torch."""

    file: str
    line: int
    text: str
    since: Version


@dataclass(frozen=True)
class Source:
    """A source as the scanner sees it."""

    file: str
    words: Sequence[Token]
    """Qualified tokens."""
    names: Vocabulary
    is_project_header: IsProjectHeader

    def use(self, word: Token, text: str, entry: Entry) -> Use:
        """A use at a token."""
        return Use(self.file, word.line, word.column, text, entry)


def uses(source: Source, table: Table) -> Iterator[Use]:
    """Every non-stable use, in the order of the text."""
    for index, word in enumerate(source.words):
        if word.kind == "include":
            entry = None if source.is_project_header(word.text) else table.header(word.text)
            if entry:
                yield source.use(word, f"<{word.text}>", entry)
        elif word.kind == "name":
            found = _member(source, index, table) or _name(source, index, table)
            if found:
                yield found


def demands(source: Source, table: Table) -> Iterator[Demand]:
    """What is stable already and needs more than the oldest Torch."""
    for index, word in enumerate(source.words):
        if word.kind != "name":
            continue
        member = at(source.words, index - 1).text in _MEMBER
        since = (
            table.younger_method(word.text)
            if member
            else table.younger_name(source.names.meaning(word.text, table))
        )
        if since:
            yield Demand(source.file, word.line, word.text, since)


def _name(source: Source, index: int, table: Table) -> Use | None:
    word, before = source.words[index], at(source.words, index - 1).text
    if before in (*_MEMBER, "define") or word.text in source.names.macros:
        return None
    text = word.text
    if before == "namespace":
        text = f"using namespace {text}" if at(source.words, index - 2).text == "using" else ""
    elif text not in source.names.imported:  # the using declaration is what changes
        text = source.names.meaning(text, table)
    entry = table.name(text)
    return source.use(word, text, entry) if entry else None


def _member(source: Source, index: int, table: Table) -> Use | None:
    words, name = source.words, source.words[index].text
    dot = index - 2 if at(words, index - 1).text == "template" else index - 1
    if at(words, dot).text not in _MEMBER:
        return None
    registered = f"m.{name}(function)"
    if table.listed(registered) and _passes_function(words, index):
        entry = table.name(registered)
        return source.use(words[index], f".{name}()", entry) if entry else None
    form = _form(words, index)
    if form is None or not is_tensor(words, dot - 1, source.names.tensors, table):
        return None
    entry = table.method(name, form)
    return (
        source.use(words[index], f".{name}{form if form == '<>' else ''}()", entry)
        if entry
        else None
    )


def _form(words: Sequence[Token], index: int) -> str | None:
    """How a method is called: with template arguments, arguments, or none; None for no call."""
    after = at(words, index + 1).text
    if after == "<":
        return "<>"
    if after != "(":
        return None
    return "" if at(words, index + 2).text == ")" else "(...)"


def _passes_function(words: Sequence[Token], index: int) -> bool:
    """`m.impl("name", &function)`, and not `m.impl("name", TORCH_BOX(&function))`."""
    texts = [at(words, index + step) for step in range(1, 5)]
    opening, schema, comma, given = texts
    if (opening.text, schema.kind, comma.text) != ("(", "string", ","):
        return False
    return given.text == "&" or (given.kind == "name" and given.text != "TORCH_BOX")

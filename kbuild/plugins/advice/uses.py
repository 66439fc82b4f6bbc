"""Finds the uses of Torch's unstable C++ API in one source file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kbuild.plugins.advice.stable_abi import Replacement, StableAbiTable
from kbuild.sources.cxx import CxxToken
from kbuild.system.version import Version

_DECORATION = ("&", "*", "const", "__restrict__", "&&")
_NO_TOKEN = CxxToken("sign", "", 0, 0)


def token_at(tokens: Sequence[CxxToken], index: int) -> CxxToken:
    """The token at a place; an empty one outside of the text."""
    return tokens[index] if 0 <= index < len(tokens) else _NO_TOKEN


def join_qualified_names(tokens: Iterable[CxxToken]) -> tuple[CxxToken, ...]:
    """The tokens, with `a::b::c` and `::a::b::c` as one name `a::b::c` each.

    A `::` belongs to the name that it touches: `return ::at::empty(n)` has two names.
    """
    joined: list[CxxToken] = []
    before, joins = _NO_TOKEN, False
    for token in tokens:
        if token.text == "::":
            joins = before.kind == "name" and (
                (before.line, before.column + len(before.text)) == (token.line, token.column)
            )
        elif joins and token.kind == "name":
            first = joined.pop()
            text = f"{first.text}::{token.text}"
            joined.append(CxxToken("name", text, first.line, first.column))
        else:
            joined.append(token)
        before, joins = token, joins and token.text == "::"
    return tuple(joined)


@dataclass(frozen=True)
class SourceNames:
    """The declarations of a source and of the project headers that it includes."""

    imported: Mapping[str, str]
    """`using at::Tensor`: the short name -> the whole one."""
    namespaces: frozenset[str]
    """`using namespace at`."""
    macros: frozenset[str]
    """Macros that the project defines itself."""
    tensors: frozenset[str]
    """Variables, members and functions of a tensor type."""

    def meaning(self, name: str, table: StableAbiTable) -> str:
        """The qualified name that a name stands for, as far as the table knows it."""
        if name in self.imported:
            return self.imported[name]
        spelled = (f"{space}::{name}" for space in sorted(self.namespaces))
        return next((full for full in spelled if table.listed(full)), name)


@dataclass(frozen=True)
class FileNames:
    """The declarations of one file, whatever file includes it."""

    tokens: Sequence[CxxToken]
    """Qualified tokens."""
    imported: tuple[tuple[str, str], ...]
    namespaces: frozenset[str]
    macros: frozenset[str]
    typed: tuple[tuple[str, str], ...]
    """`Tensor x`: each type as it is written that may be a tensor's, and what has it."""
    deduced: tuple[tuple[str, int], ...]
    """`auto y = ...;`: the name, and the index of the last token of its value."""


def file_names(tokens: Sequence[CxxToken], table: StableAbiTable) -> FileNames:
    """The names of one file, given its qualified tokens."""
    return FileNames(
        tokens,
        tuple((name.rpartition("::")[2], name) for name in _after(tokens, "using") if "::" in name),
        frozenset(_after(tokens, "using", "namespace")),
        frozenset(_after(tokens, "#", "define")),
        tuple(dict.fromkeys(_declared(tokens, table))),
        tuple(_deduced(tokens)),
    )


def collect_names(files: Sequence[FileNames], table: StableAbiTable) -> SourceNames:
    """The vocabulary of a source and its headers, source first."""
    # The source comes first in `files`, so that its own names win over those of headers.
    imported = dict(chain.from_iterable(file.imported for file in reversed(files)))
    spaces = frozenset(chain.from_iterable(file.namespaces for file in files))
    macros = frozenset(chain.from_iterable(file.macros for file in files))
    names = SourceNames(imported, spaces, macros, frozenset())
    tensors = {
        name
        for file in files
        for written, name in file.typed
        if names.meaning(written, table) in table.tensor_types
    }
    # The set grows here, since a variable may be deduced from one that was deduced before.
    for file in files:
        for name, end in file.deduced:
            if is_tensor(file.tokens, end, tensors, table):
                tensors.add(name)
    return SourceNames(imported, spaces, macros, frozenset(tensors))


def is_tensor(
    tokens: Sequence[CxxToken], end: int, tensors: Collection[str], table: StableAbiTable
) -> bool:
    """True when the expression that ends at `end` is a tensor: a name, or a call that gives one."""
    if token_at(tokens, end).text != ")":
        return token_at(tokens, end).text in tensors
    called = _opening(tokens, end) - 1
    name = token_at(tokens, called).text
    if token_at(tokens, called - 1).text in {".", "->"}:
        return _returns_tensor(name, table) and is_tensor(tokens, called - 2, tensors, table)
    space, _, operator = name.rpartition("::")
    return name in tensors or (space in {"at", "torch"} and _returns_tensor(operator, table))


def _returns_tensor(operator: str, table: StableAbiTable) -> bool:
    if operator in table.operators:
        return operator != "item"
    entry = table.name(f"at::{operator}")
    return entry is not None and (entry.stable or "").startswith("torch::stable::")


def _opening(tokens: Sequence[CxxToken], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += {")": 1, "(": -1}.get(tokens[index].text, 0)
        if not depth:
            return index
    return 0


def _after(tokens: Sequence[CxxToken], *texts: str) -> Iterator[str]:
    """The tokens that follow some others, as text."""
    for index in range(len(texts), len(tokens)):
        if all(tokens[index - at].text == text for at, text in enumerate(reversed(texts), 1)):
            yield tokens[index].text


def _declared(tokens: Sequence[CxxToken], table: StableAbiTable) -> Iterator[tuple[str, str]]:
    """`at::Tensor x`, `const Tensor &x`, `Tensor f(...)`."""
    types = {name.rpartition("::")[2] for name in table.tensor_types}
    for index, token in enumerate(tokens):
        if token.kind == "name" and token.text.rpartition("::")[2] in types:
            after = index + 1
            while token_at(tokens, after).text in _DECORATION:
                after += 1
            if token_at(tokens, after).kind == "name":
                yield token.text, tokens[after].text


def _deduced(tokens: Sequence[CxxToken]) -> Iterator[tuple[str, int]]:
    for index, token in enumerate(tokens):
        name = token_at(tokens, index - 1)
        if token.text != "=" or name.kind != "name" or not _is_auto(tokens, index - 2):
            continue
        end = index
        while end + 1 < len(tokens) and tokens[end + 1].text != ";":
            end += 1
        yield name.text, end


def _is_auto(tokens: Sequence[CxxToken], index: int) -> bool:
    while token_at(tokens, index).text in _DECORATION:
        index -= 1
    return token_at(tokens, index).text == "auto"


IsProjectHeader = Callable[[str], bool]
_MEMBER = (".", "->")


@dataclass(frozen=True)
class ApiUse:
    """One place where a source needs Torch's C++ API."""

    file: str
    line: int
    column: int
    text: str
    """The use as the source means it: `at::Tensor`, `<ATen/ATen.h>`, `.contiguous()`."""
    entry: Replacement

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
class VersionRequirement:
    """A place that is stable already and needs a certain Torch."""

    file: str
    line: int
    text: str
    since: Version


@dataclass(frozen=True)
class ScannedSource:
    """A source as the scanner sees it."""

    file: str
    tokens: Sequence[CxxToken]
    """Qualified tokens."""
    names: SourceNames
    is_project_header: IsProjectHeader

    def use(self, token: CxxToken, text: str, entry: Replacement) -> ApiUse:
        """A use at a token."""
        return ApiUse(self.file, token.line, token.column, text, entry)


def find_uses(source: ScannedSource, table: StableAbiTable) -> Iterator[ApiUse]:
    """Every non-stable use, in the order of the text."""
    for index, token in enumerate(source.tokens):
        if token.kind == "include":
            header = token.text[1:-1]
            entry = None if source.is_project_header(header) else table.header(header)
            if entry:
                yield source.use(token, f"<{header}>", entry)
        elif token.kind == "name":
            use = _member_use(source, index, table) or _name_use(source, index, table)
            if use:
                yield use


def find_version_requirements(
    source: ScannedSource, table: StableAbiTable
) -> Iterator[VersionRequirement]:
    """Find stable uses that need more than the oldest Torch."""
    for index, token in enumerate(source.tokens):
        if token.kind != "name":
            continue
        is_method = token_at(source.tokens, index - 1).text in _MEMBER
        name = token.text if is_method else source.names.meaning(token.text, table)
        if since := table.newer_release(name, is_method=is_method):
            yield VersionRequirement(source.file, token.line, token.text, since)


def _name_use(source: ScannedSource, index: int, table: StableAbiTable) -> ApiUse | None:
    token, before = source.tokens[index], token_at(source.tokens, index - 1).text
    if before in (*_MEMBER, "define") or token.text in source.names.macros:
        return None
    text = token.text
    if before == "namespace":
        text = (
            f"using namespace {text}" if token_at(source.tokens, index - 2).text == "using" else ""
        )
    elif text not in source.names.imported:  # the using declaration is what changes
        text = source.names.meaning(text, table)
    entry = table.name(text)
    return source.use(token, text, entry) if entry else None


def _member_use(source: ScannedSource, index: int, table: StableAbiTable) -> ApiUse | None:
    tokens, name = source.tokens, source.tokens[index].text
    dot = index - 2 if token_at(tokens, index - 1).text == "template" else index - 1
    if token_at(tokens, dot).text not in _MEMBER:
        return None
    registered = f"m.{name}(function)"
    if table.listed(registered) and _passes_function(tokens, index):
        entry = table.name(registered)
        return source.use(tokens[index], f".{name}()", entry) if entry else None
    form = _call_form(tokens, index)
    if form is None or not is_tensor(tokens, dot - 1, source.names.tensors, table):
        return None
    entry = table.method(name, form)
    return (
        source.use(tokens[index], f".{name}{form if form == '<>' else ''}()", entry)
        if entry
        else None
    )


def _call_form(tokens: Sequence[CxxToken], index: int) -> str | None:
    """The form of a call: with template arguments, arguments, or none; None for no call."""
    after = token_at(tokens, index + 1).text
    if after == "<":
        return "<>"
    if after != "(":
        return None
    return "" if token_at(tokens, index + 2).text == ")" else "(...)"


def _passes_function(tokens: Sequence[CxxToken], index: int) -> bool:
    """`m.impl("name", &function)`, and not `m.impl("name", TORCH_BOX(&function))`."""
    opening, schema, comma, argument = (token_at(tokens, index + step) for step in range(1, 5))
    if (opening.text, schema.kind, comma.text) != ("(", "string", ","):
        return False
    return argument.text == "&" or (argument.kind == "name" and argument.text != "TORCH_BOX")

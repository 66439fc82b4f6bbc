"""The functions that C++ sources define, declare and use, as far as their text shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kbuild.sources.cxx import CxxCode, CxxToken, closing_sign

_TYPES = ("class", "struct", "union", "enum")
_INTERNAL_LINKAGE = ("static", "inline", "constexpr", "consteval", "friend", "typedef", "using")
_WEAK = ("weak", "weak_import")
_NO_NAMES = frozenset(
    (
        *("if", "for", "while", "switch", "return", "sizeof", "alignof", "decltype", "noexcept"),
        *("operator", "requires", "alignas", "__attribute__", "__declspec", "__launch_bounds__"),
    )
)
_MEMBER = (".", "->")
_BEFORE_USES = ("return", "else", "do", "case", "co_await")
_ENDS_TYPE = ("*", "&", "&&", ">", "::", ")")


@dataclass(frozen=True)
class FunctionMention:
    """A function's name at one place."""

    name: str
    """With the qualifiers that apply or were written: `sm80::launch`."""
    line: int
    maybe: bool = False
    """In a branch, a template or a macro: some builds may do without."""
    is_own: bool = False
    """No other file can link against it."""

    @property
    def base(self) -> str:
        """The last part."""
        return self.name.rpartition("::")[2]

    def means(self, other: str) -> bool:
        """True when the name, as it was written, may be the qualified one."""
        return other == self.name or other.endswith(f"::{self.name}")


@dataclass
class CxxFunctions:
    """The functions of one file."""

    defined: list[FunctionMention] = field(default_factory=list)
    declared: list[FunctionMention] = field(default_factory=list)
    used: list[FunctionMention] = field(default_factory=list)
    """Every identifier in bodies, and in macros, that may be a function's."""
    in_macros: set[str] = field(default_factory=set)
    """Identifiers that a macro may make definitions of: `DEFINE(f)`, `template void f<T>();`."""


@dataclass
class _CxxScope:
    kind: str
    """`namespace`, `body` of a function, or `other` braces."""
    name: str = ""
    is_hidden: bool = False
    """Below an unnamed namespace."""
    is_template: bool = False


def read_functions(code: CxxCode) -> CxxFunctions:
    """Read one file; never fails, whatever the text is."""
    reader = _FunctionReader()
    for at, word in enumerate(code.tokens):
        reader.take(code.tokens, at, word)
    for macro in code.macros:
        if any(word.text == "template" for word in macro.body):
            reader.found.in_macros.update(_identifiers(macro.body))
        for at in range(len(macro.body)):
            reader.use(macro.body, at, maybe=True)
    return reader.found


class _FunctionReader:
    """Walks the words of one file."""

    def __init__(self) -> None:
        self.found = CxxFunctions()
        self.scopes = [_CxxScope("namespace")]
        self.statement: list[CxxToken] = []
        """The words of the statement so far, where the scope is a namespace."""
        self.depth = 0
        """Of parentheses and brackets."""

    def take(self, tokens: Sequence[CxxToken], at: int, token: CxxToken) -> None:
        self.depth += (token.text in "([") - (token.text in ")]")
        if token.text == "{":
            self._open()
        elif token.text == "}":
            closed = self.scopes.pop() if len(self.scopes) > 1 else self.scopes[0]
            if self.scopes[-1].kind == "namespace":
                self.depth = 0
                if closed.kind == "body":
                    self.statement = []
        elif self.scopes[-1].kind != "namespace":
            self.use(tokens, at, maybe=any(scope.is_template for scope in self.scopes))
        elif token.text == ";" and self.depth <= 0:
            _declare(self.statement, self.scopes, self.found)
            self.statement, self.depth = [], 0
        else:
            self.statement.append(token)

    def use(self, tokens: Sequence[CxxToken], at: int, *, maybe: bool) -> None:
        """Note a name that may be a function's."""
        token = tokens[at]
        if token.text.isidentifier() and _is_use(tokens, at):
            self.found.used.append(
                FunctionMention(_written(tokens, at), token.line, maybe or token.maybe)
            )

    def _open(self) -> None:
        is_plain = self.depth <= 0  # not a braced list among arguments
        opened = (
            _open_scope(self.statement, self.scopes, self.found) if is_plain else _CxxScope("body")
        )
        self.scopes.append(opened)
        if opened.kind == "namespace":
            self.statement = []


def _open_scope(
    statement: Sequence[CxxToken], scopes: Sequence[_CxxScope], functions: CxxFunctions
) -> _CxxScope:
    """What a brace opens, by the words before it; a definition of a function is noted."""
    around = scopes[-1]
    texts = [word.text for word in statement]
    if around.kind != "namespace":
        return _CxxScope("body", is_hidden=around.is_hidden)
    if "namespace" in texts:
        names = [text for text in texts[texts.index("namespace") + 1 :] if text.isidentifier()]
        return _CxxScope("namespace", "::".join(names), around.is_hidden or not names)
    if texts[:1] == ["extern"] and "(" not in texts:
        return _CxxScope("namespace", is_hidden=around.is_hidden)
    form, rest = _template(statement, functions)
    declarator = _declarator(rest, functions)
    is_template = form == "template"
    if declarator is None or any(word.text == "=" for word in rest[:declarator]):
        # After a type or a value the statement goes on; after a macro's block it does not.
        goes_on = bool({*_TYPES, "="} & {*texts}) or "(" not in texts
        kind = "other" if goes_on else "body"
        return _CxxScope(kind, is_hidden=around.is_hidden, is_template=is_template)
    is_own = around.is_hidden or is_template or bool({*texts} & {*_INTERNAL_LINKAGE})
    functions.defined.append(_named(declarator, rest, scopes, is_own=is_own))
    return _CxxScope("body", is_hidden=around.is_hidden, is_template=is_template)


def _declare(
    statement: Sequence[CxxToken], scopes: Sequence[_CxxScope], functions: CxxFunctions
) -> None:
    form, rest = _template(statement, functions)
    texts = {word.text for word in rest}
    declarator = _declarator(rest, functions)
    if declarator is None or scopes[-1].is_hidden:
        return
    if form == "instantiation":
        if rest[0].text not in _TYPES:
            functions.defined.append(_named(declarator, rest, scopes))
    elif not texts & {*_INTERNAL_LINKAGE, *_WEAK, *_TYPES, "="}:
        # `struct X f(...)` is rare, and not knowing it says less, nothing wrong.
        functions.declared.append(_named(declarator, rest, scopes))


_Form = Literal["", "template", "specialisation", "instantiation"]


def _template(
    statement: Sequence[CxxToken], functions: CxxFunctions
) -> tuple[_Form, Sequence[CxxToken]]:
    """What kind of template a statement is about, and the statement after `template <...>`."""
    form: _Form = ""
    texts, closing = [word.text for word in statement], _angles(statement)
    places = (at for at, text in enumerate(texts) if text == "template")
    start = next((at for at in places if texts[at - 1 : at] in ([], [")"])), None)
    if start is None:
        return form, statement
    functions.in_macros.update(_identifiers(statement[:start]))  # `MACRO(x) template ...`
    while texts[start : start + 1] == ["template"]:
        end = closing.get(start + 1)
        if end is None:
            return form or "instantiation", statement[start + 1 :]
        form = "template" if end > start + 2 or form == "template" else "specialisation"
        start = end + 1
    return form, statement[start:]


def _angles(tokens: Sequence[CxxToken]) -> dict[int, int]:
    """Where each `<` of template arguments is closed; others compare."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.text in ("(", "<"):
            opened.append(at)
        elif token.text == ">" and opened and tokens[opened[-1]].text == "<":
            closing[opened.pop()] = at
        elif token.text == ")":
            while opened and tokens[opened.pop()].text != "(":
                pass
    return closing


def _declarator(statement: Sequence[CxxToken], functions: CxxFunctions) -> int | None:
    """The index of the function's name: before the first parentheses after something like a type.

    Between both there may be template arguments. Other names before parentheses are attributes and
    macros; `functions` gets what the macros are given.
    """
    at, closing = 0, _angles(statement)
    while at + 1 < len(statement):
        name, before = statement[at].text, statement[at - 1].text if at else ""
        is_name = name not in _NO_NAMES and (before.isidentifier() or before in _ENDS_TYPE)
        after = closing.get(at + 1, at) + 1 if is_name else at + 1
        if not name.isidentifier() or not (after < len(statement) and statement[after].text == "("):
            at += 1
            continue
        if is_name:
            return None if _is_of_template(statement, at) else at
        end = closing_sign(statement, after)
        if name not in _NO_NAMES:
            functions.in_macros.update(_identifiers(statement[after:end]))
        at = end + 1
    return None


def _is_of_template(tokens: Sequence[CxxToken], at: int) -> bool:
    """True for `run` of `S<float>::run`: a member of a class, as a rule."""
    return [token.text for token in tokens[max(at - 2, 0) : at]] == [">", "::"]


def _identifiers(tokens: Sequence[CxxToken]) -> Iterator[str]:
    return (token.text for token in tokens if token.text.isidentifier())


def _named(
    at: int, statement: Sequence[CxxToken], scopes: Sequence[_CxxScope], *, is_own: bool = False
) -> FunctionMention:
    around = [scope.name for scope in scopes if scope.name]
    word = statement[at]
    return FunctionMention(
        "::".join([*around, _written(statement, at)]), word.line, word.maybe, is_own
    )


def _written(tokens: Sequence[CxxToken], at: int) -> str:
    """The name there with the qualifiers in front of it."""
    return "::".join(reversed([*_backwards(tokens, at)]))


def _backwards(tokens: Sequence[CxxToken], at: int) -> Iterator[str]:
    yield tokens[at].text
    while at >= 2 and tokens[at - 1].text == "::" and tokens[at - 2].text.isidentifier():  # noqa: PLR2004
        at -= 2
        yield tokens[at].text


def _is_use(tokens: Sequence[CxxToken], at: int) -> bool:
    """True where a function may be called or its address taken; not for members and qualifiers."""
    before = tokens[at - 1].text if at else ""
    after = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if before in _MEMBER or after == "::" or tokens[at].text in _NO_NAMES:
        return False
    if _is_of_template(tokens, at):
        return False
    # `int f(...)` in a body declares, and so does a variable.
    is_declared = before.isidentifier() and before not in _BEFORE_USES
    return not is_declared and after in ("(", ")", ",", ";", "}", "<", "")

"""Parses the text of a schema: tokens, types, default values; errors name a column."""

from __future__ import annotations

import math
import re

from kbuild.ops.schema.model import (
    BASES,
    Alias,
    Default,
    DefaultValue,
    Return,
    Schema,
    SchemaArgument,
    SymbolicDefault,
    Type,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TOKEN = re.compile(
    # The look-ahead rejects `1x` and `1.2.3` as a whole.
    r"(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![A-Za-z0-9_.])"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<symbol>->|::|[()\[\],.?!*=|])",
    re.ASCII,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}


class SchemaError(ValueError):
    """A text that is not a schema; has a column, and advice."""

    def __init__(self, message: str, column: int, hint: str = "") -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """1-based."""
        self.hint = hint


class SchemaTokens:
    """A position in the text; each method consumes a token, or raises an error."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._skip(0)

    def _skip(self, at: int) -> None:
        space = _SPACE.match(self._text, at)
        self.at = space.end() if space else at
        self._match = _TOKEN.match(self._text, self.at)

    @property
    def column(self) -> int:
        """1-based column of the next token."""
        return self.at + 1

    @property
    def kind(self) -> str:
        """`number`, `name`, `string` or `symbol`; empty at the end and before any other text."""
        return str(self._match.lastgroup) if self._match else ""

    @property
    def text(self) -> str:
        """The next token, an invalid character, or empty at the end."""
        return self._match.group() if self._match else self._text[self.at : self.at + 1]

    def take(self, *symbols: str) -> str:
        """Consume the next symbol if it is one of these; else return an empty string."""
        if self.kind != "symbol" or self.text not in symbols:
            return ""
        return self._advance()

    def expect(self, symbol: str, hint: str = "") -> None:
        """Consume a symbol that is required here."""
        if not self.take(symbol):
            raise self.unexpected(f"`{symbol}`", hint)

    def name(self, what: str) -> str:
        """Consume a name; `what` describes it in errors."""
        if self.kind != "name":
            raise self.unexpected(what)
        return self._advance()

    def literal(self, kind: str) -> str:
        """Consume a number or string and return its text; else return an empty string."""
        return self._advance() if self.kind == kind else ""

    def end(self) -> None:
        """Raise an error unless the text ends here."""
        if self.at < len(self._text):
            raise self.unexpected("the end")

    def _advance(self) -> str:
        text = self.text
        self._skip(self.at + len(text))
        return text

    def unexpected(self, wanted: str, hint: str = "") -> SchemaError:
        """Return the error that `wanted` is expected here."""
        actual = f"`{self.text}`" if self.text else "the end"
        return SchemaError(f"expected {wanted}, found {actual}", self.column, hint)


_SYMBOLS = {
    "int": ("Mean",),
    "MemoryFormat": ("contiguous_format",),
    "Layout": ("strided",),
    "ScalarType": (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64"),
        *("half", "float", "double", "int", "long", "short"),
    ),
}
"""Type -> words that are values of it, which Torch accepts only for that type."""
_INTEGERS = ("int", "SymInt")
_INT64_LIMIT = 2**63
_MOST_DIGITS = 40
"""Maximum of digits, with leading zeros; Python refuses to convert more than 4300."""


def read_default(tokens: SchemaTokens, type_: Type) -> Default:
    """Parse the value after `=`.

    Raises:
        SchemaError: it is not a value of that type.
    """
    if tokens.text == "None" and type_.is_optional:
        tokens.name("None")
        return Default(None)
    sizes = [suffix[1:-1] for suffix in type_.suffixes if suffix.startswith("[")]
    if not sizes:
        return Default(_default_value(tokens, type_))
    size, column = sizes[0], tokens.column
    if tokens.take("["):
        values: list[DefaultValue] = []
        while not tokens.take("]"):
            if values:
                tokens.expect(",")
            values.append(_default_value(tokens, type_))
        if size and len(values) != int(size):
            raise SchemaError(f"`{type_}` has {size} values, not {len(values)}", column)
        return Default(tuple(values))
    if size:
        return Default((_default_value(tokens, type_),) * int(size))
    raise tokens.unexpected("a list", "e.g. `[1, 2]`")


def _default_value(tokens: SchemaTokens, type_: Type) -> DefaultValue:
    column = tokens.column
    if tokens.text in ("True", "False") and type_.name in ("bool", "Scalar"):
        return tokens.name("a value") == "True"
    if type_.name in _SYMBOLS and tokens.kind == "name":
        known = _SYMBOLS[type_.name]
        if tokens.text not in known:
            hint = f"known: {', '.join(f'`{word}`' for word in known)}"
            raise tokens.unexpected(f"a value of type `{type_}`", hint)
        return SymbolicDefault(tokens.name("a value"))
    if type_.name in (*_INTEGERS, "float", "Scalar") and tokens.kind == "number":
        return _default_number(tokens.literal("number"), type_, column)
    if type_.name in ("str", "Device") and tokens.kind == "string":
        literal = tokens.literal("string")
        if not set(_ESCAPE.findall(literal)) <= _ESCAPES.keys():
            raise SchemaError("the string has an escape that schemas do not know", column)
        return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], literal[1:-1])
    hint = "write `True` or `False`" if type_.name == "bool" else ""
    raise tokens.unexpected(f"a value of type `{type_}`", hint)


def _default_number(text: str, type_: Type, column: int) -> int | float:
    is_integer = text.lstrip("-").isdecimal()
    if type_.name == "float" or (type_.name == "Scalar" and not is_integer):
        number = float(text)
        if not math.isfinite(number):
            raise SchemaError(f"`{_shown(text)}` does not fit into 64 bits", column)
        return number
    if not is_integer:
        raise SchemaError(f"`{_shown(text)}` is not an integer", column)
    if len(text) > _MOST_DIGITS or not -_INT64_LIMIT <= int(text) < _INT64_LIMIT:
        raise SchemaError(f"`{_shown(text)}` does not fit into 64 bits", column)
    return int(text)


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}..."


_MAX_LIST_DIGITS = 3
"""Maximum of digits in the size of a list: a single default is repeated that often."""
_LIKELY = {
    "double": "float",
    "int64_t": "int",
    "long": "int",
    "tensor": "Tensor",
    "string": "str",
    "dtype": "ScalarType",
    "number": "Scalar",
    "boolean": "bool",
    "size_t": "int",
    "device": "Device",
}
"""Frequent mistakes in types -> the type in schemas."""
_SIGNATURE = "e.g. `add(Tensor x, Tensor y) -> Tensor`"


def parse_schema(text: str) -> Schema:
    """Parse a schema.

    Raises:
        SchemaError: Torch would reject it, or it has types that no op of a kernel can take.
    """
    tokens = SchemaTokens(text)
    name, overload = _name(tokens)
    arguments = _arguments(tokens)
    tokens.expect("->", f"{_SIGNATURE}; `-> ()` for an op without results")
    returns = _returns(tokens)
    tokens.end()
    return Schema(name, arguments, returns, overload)


def _name(tokens: SchemaTokens) -> tuple[str, str]:
    name = tokens.name("the op's name")
    if tokens.take("::"):
        name = f"{name}::{tokens.name('the name behind the namespace')}"
    overload = tokens.name("the overload's name") if tokens.take(".") else ""
    return name, overload


def _arguments(tokens: SchemaTokens) -> tuple[SchemaArgument, ...]:
    tokens.expect("(", _SIGNATURE)
    arguments: list[SchemaArgument] = []
    keyword_only = False
    while not tokens.take(")"):
        if arguments or keyword_only:
            _comma(tokens)
        column = tokens.column
        if tokens.take("*"):
            if keyword_only:
                raise SchemaError("`*` is written twice", column)
            keyword_only = True
            continue
        arguments.append(_argument(tokens, arguments, keyword_only=keyword_only))
    return tuple(arguments)


def _comma(tokens: SchemaTokens) -> None:
    if not tokens.take(","):
        raise tokens.unexpected("`,` or `)`")


def _argument(
    tokens: SchemaTokens, before: list[SchemaArgument], *, keyword_only: bool
) -> SchemaArgument:
    type_ = _type(tokens)
    column = tokens.column
    name = tokens.name("the argument's name")
    if any(argument.name == name for argument in before):
        raise SchemaError(f"two arguments are called `{name}`", column)
    value = read_default(tokens, type_) if tokens.take("=") else None
    defaults = any(argument.default for argument in before if not argument.keyword_only)
    if value is None and defaults and not keyword_only:
        hint = "arguments with defaults come last"
        raise SchemaError(f"`{name}` has no default, and one before it has", column, hint)
    return SchemaArgument(name, type_, value, keyword_only)


def _returns(tokens: SchemaTokens) -> tuple[Return, ...]:
    if not tokens.take("("):
        return (_return(tokens),)
    returns: list[Return] = []
    while not tokens.take(")"):
        if returns:
            _comma(tokens)
        returns.append(_return(tokens))
    return tuple(returns)


def _return(tokens: SchemaTokens) -> Return:
    type_ = _type(tokens)
    return Return(type_, tokens.name("a name") if tokens.kind == "name" else "")


def _type(tokens: SchemaTokens) -> Type:
    column = tokens.column
    if tokens.text == ".":
        raise SchemaError("a kernel's op has a fixed number of arguments", column)
    name = tokens.name("a type")
    if name not in BASES:
        meant = _LIKELY.get(name)
        hint = f"write `{meant}`" if meant else f"types: {', '.join(f'`{base}`' for base in BASES)}"
        raise SchemaError(f"`{name}` is not a type of an op's argument", column, hint)
    alias = _alias(tokens)
    suffixes: list[str] = []
    while symbol := tokens.take("?", "["):
        suffixes.append("?" if symbol == "?" else _list(tokens))
    if suffixes[1:] and (suffixes[-2:] == ["?", "?"] or sum(s != "?" for s in suffixes) > 1):
        raise SchemaError("lists of lists are not supported", column)
    return Type(name, alias, tuple(suffixes))


def _list(tokens: SchemaTokens) -> str:
    column, size = tokens.column, tokens.literal("number")
    if size and not (size.isdecimal() and len(size) <= _MAX_LIST_DIGITS and int(size)):
        raise SchemaError(f"a list of `{size[:20]}` values", column, "e.g. `int[2]`")
    tokens.expect("]")
    return f"[{size}]"


def _alias(tokens: SchemaTokens) -> Alias | None:
    if tokens.take("!"):
        return Alias(write=True)
    if not tokens.take("("):
        return None
    before = _sets(tokens)
    write = bool(tokens.take("!"))
    after = _sets(tokens) if tokens.take("->") else None
    tokens.expect(")", "an argument that is written to is `Tensor(a!) x`")
    return Alias(before, write, after)


def _sets(tokens: SchemaTokens) -> tuple[str, ...]:
    names = set[str]()
    while not names or tokens.take("|"):
        names.add(tokens.take("*") or tokens.name("the name of an alias set"))
    return tuple(sorted(names))

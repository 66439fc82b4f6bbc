"""From a schema's text to its values."""

from __future__ import annotations

from kbuild.languages.schema.defaults import default
from kbuild.languages.schema.tokens import SchemaError, Tokens
from kbuild.languages.schema.values import BASES, Alias, Argument, Return, Schema, Type

__all__ = ["SchemaError", "parse_schema"]

_DIGITS = 3
"""Of the size of a list: a default is written out that often."""
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
"""What is written for a type, and what it is called in schemas."""
_SIGNATURE = "e.g. `add(Tensor x, Tensor y) -> Tensor`"


def parse_schema(text: str) -> Schema:
    """Read a schema.

    Raises:
        SchemaError: Torch would refuse it, or it has types that no op of a kernel can take.
    """
    tokens = Tokens(text)
    name, overload = _name(tokens)
    arguments = _arguments(tokens)
    if not tokens.take("->"):
        hint = f"{_SIGNATURE}; `-> ()` for an op without results"
        raise tokens.unexpected("`->`", hint)
    returns = _returns(tokens)
    tokens.end()
    return Schema(name, arguments, returns, overload)


def _name(tokens: Tokens) -> tuple[str, str]:
    name = tokens.name("the op's name")
    if tokens.take("::"):
        name = f"{name}::{tokens.name('the name behind the namespace')}"
    overload = tokens.name("the overload's name") if tokens.take(".") else ""
    return name, overload


def _arguments(tokens: Tokens) -> tuple[Argument, ...]:
    tokens.expect("(", _SIGNATURE)
    found: list[Argument] = []
    keyword_only = False
    while not tokens.take(")"):
        if found or keyword_only:
            _comma(tokens)
        column = tokens.column
        if tokens.take("*"):
            if keyword_only:
                raise SchemaError("`*` is written twice", column)
            keyword_only = True
            continue
        found.append(_argument(tokens, found, keyword_only=keyword_only))
    return tuple(found)


def _comma(tokens: Tokens) -> None:
    if not tokens.take(","):
        raise tokens.unexpected("`,` or `)`")


def _argument(tokens: Tokens, before: list[Argument], *, keyword_only: bool) -> Argument:
    type_ = _type(tokens)
    column = tokens.column
    name = tokens.name("the argument's name")
    if any(argument.name == name for argument in before):
        raise SchemaError(f"two arguments are called `{name}`", column)
    value = default(tokens, type_) if tokens.take("=") else None
    defaults = any(argument.default for argument in before if not argument.keyword_only)
    if value is None and defaults and not keyword_only:
        hint = "arguments with defaults come last"
        raise SchemaError(f"`{name}` has no default, and one before it has", column, hint)
    return Argument(name, type_, value, keyword_only)


def _returns(tokens: Tokens) -> tuple[Return, ...]:
    if not tokens.take("("):
        return (_return(tokens),)
    found: list[Return] = []
    while not tokens.take(")"):
        if found:
            _comma(tokens)
        found.append(_return(tokens))
    return tuple(found)


def _return(tokens: Tokens) -> Return:
    type_ = _type(tokens)
    return Return(type_, tokens.name("a name") if tokens.kind == "name" else "")


def _type(tokens: Tokens) -> Type:
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
        raise SchemaError("lists of lists are no arguments", column)
    return Type(name, alias, tuple(suffixes))


def _list(tokens: Tokens) -> str:
    column, size = tokens.column, tokens.literal("number")
    if size and not (size.isdecimal() and len(size) <= _DIGITS and int(size)):
        raise SchemaError(f"a list of `{size[:20]}` values", column, "e.g. `int[2]`")
    tokens.expect("]")
    return f"[{size}]"


def _alias(tokens: Tokens) -> Alias | None:
    if tokens.take("!"):
        return Alias(write=True)
    if not tokens.take("("):
        return None
    before = _sets(tokens)
    write = bool(tokens.take("!"))
    after = _sets(tokens) if tokens.take("->") else None
    if not tokens.take(")"):
        raise tokens.unexpected("`)`", "an argument that is written to is `Tensor(a!) x`")
    return Alias(before, write, after)


def _sets(tokens: Tokens) -> tuple[str, ...]:
    found = {_set(tokens)}
    while tokens.take("|"):
        found.add(_set(tokens))
    return tuple(sorted(found))


def _set(tokens: Tokens) -> str:
    return tokens.take("*") or tokens.name("the name of an alias set")

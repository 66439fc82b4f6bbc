"""Default values of arguments, by the argument's type."""

from __future__ import annotations

import math

from kbuild.languages.schema.tokens import SchemaError, Tokens, unquoted
from kbuild.languages.schema.values import Default, Symbol, Type, Value

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
"""Words that are values, by type. Torch takes them only here."""
_INTEGERS = ("int", "SymInt")
_INT64 = 2**63
_MOST_DIGITS = 40
"""With zeros in front; Python refuses numbers of more than 4300."""


def default(tokens: Tokens, type_: Type) -> Default:
    """The value behind `=`.

    Raises:
        SchemaError: it is no value of that type.
    """
    if tokens.text == "None" and type_.is_optional:
        tokens.name("None")
        return Default(None)
    sizes = [suffix[1:-1] for suffix in type_.suffixes if suffix.startswith("[")]
    if not sizes:
        return Default(_value(tokens, type_))
    if tokens.text == "[":
        return Default(_items(tokens, type_, sizes[0]))
    if sizes[0]:
        return Default((_value(tokens, type_),) * int(sizes[0]))
    raise tokens.unexpected("a list", "e.g. `[1, 2]`")


def _items(tokens: Tokens, type_: Type, size: str) -> tuple[Value, ...]:
    column = tokens.column
    tokens.expect("[")
    found: list[Value] = []
    while not tokens.take("]"):
        if found:
            tokens.expect(",")
        found.append(_value(tokens, type_))
    if size and len(found) != int(size):
        raise SchemaError(f"`{type_}` has {size} values, not {len(found)}", column)
    return tuple(found)


def _value(tokens: Tokens, type_: Type) -> Value:
    column = tokens.column
    if tokens.text in ("True", "False") and type_.name in ("bool", "Scalar"):
        return tokens.name("a value") == "True"
    if type_.name in _SYMBOLS and tokens.kind == "name":
        return _symbol(tokens, type_)
    if type_.name in (*_INTEGERS, "float", "Scalar") and tokens.kind == "number":
        return _number(tokens.literal("number"), type_, column)
    if type_.name in ("str", "Device") and tokens.kind == "string":
        text = unquoted(tokens.literal("string"))
        if text is None:
            raise SchemaError("the string has an escape that schemas do not know", column)
        return text
    hint = "write `True` or `False`" if type_.name == "bool" else ""
    raise tokens.unexpected(f"a value of type `{type_}`", hint)


def _symbol(tokens: Tokens, type_: Type) -> Symbol:
    known = _SYMBOLS[type_.name]
    if tokens.text not in known:
        hint = f"known: {', '.join(f'`{word}`' for word in known)}"
        raise tokens.unexpected(f"a value of type `{type_}`", hint)
    return Symbol(tokens.name("a value"))


def _number(text: str, type_: Type, column: int) -> int | float:
    whole = text.lstrip("-").isdecimal()
    if type_.name == "float" or (type_.name == "Scalar" and not whole):
        number = float(text)
        if not math.isfinite(number):
            raise SchemaError(f"`{_shown(text)}` does not fit into 64 bits", column)
        return number
    if not whole:
        raise SchemaError(f"`{_shown(text)}` is not an integer", column)
    if len(text) > _MOST_DIGITS or not -_INT64 <= int(text) < _INT64:
        raise SchemaError(f"`{_shown(text)}` does not fit into 64 bits", column)
    return int(text)


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}..."

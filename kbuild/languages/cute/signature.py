"""Arguments as a command line says them, for kernels that are exported without an op.

x=float16[M, N%8]@16      a tensor, row by row; N divisible by 8; its address by 16 bytes
x=float16[M, 64; S, 1]    with strides: any number S, and 1
n=i32  alpha=f32  flag=bool  shape=(i32, i64)
block=128  eps=1e-6  causal=true  wide=float32
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.errors import UsageError
from kbuild.languages.spec.dtypes import DTYPES

_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^];]*)(?:;(?P<strides>[^]]*))?\](?:@(?P<align>\d+))?"
)
_SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)?\s*(?:%\s*(?P<divisor>\d+))?")
_NUMBERS = {"i32": ("int", 32), "i64": ("int", 64), "f32": ("float", 0), "bool": ("bool", 0)}
_FORMS = "e.g. `x=float16[M, N%8]@16`, `n=i32`, `shape=(i32, i32)`, `block=128`"
_WORDS = {"true": True, "false": False}


def read_arguments(texts: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the worker is asked: arguments in order, and constants.

    Raises:
        UsageError: one is not written as it must be.
    """
    arguments: list[dict[str, Any]] = []
    constants: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise UsageError(f"--arg: `{text}` is no argument", hint=_FORMS)
        if name in constants or any(one["name"] == name for one in arguments):
            raise UsageError(f"--arg: `{name}` is given twice")
        found = _argument(name, value)
        if found is None:
            constants[name] = _constant(text, value)
        else:
            arguments.append(found)
    return arguments, constants


def _argument(name: str, value: str) -> dict[str, Any] | None:
    """None when it is a constant."""
    if value.startswith("(") and value.endswith(")"):
        parts = [part.strip() for part in value[1:-1].split(",") if part.strip()]
        items = [_argument(f"{name}.{at}", part) for at, part in enumerate(parts)]
        if not items or None in items:
            raise UsageError(f"--arg: `{value}` is no tuple of arguments", hint=_FORMS)
        return {"name": name, "kind": "tuple", "items": items}
    if value in _NUMBERS:
        kind, bits = _NUMBERS[value]
        return {"name": name, "kind": kind, **({"bits": bits} if bits else {})}
    match = _TENSOR.fullmatch(value)
    return None if match is None else _tensor(name, value, match)


def _tensor(name: str, text: str, match: re.Match[str]) -> dict[str, Any]:
    if match["dtype"] not in DTYPES:
        raise UsageError(f"--arg: `{match['dtype']}` is no dtype", hint=", ".join(DTYPES))
    shape = _sizes(text, match["shape"], 32)
    strides = None if match["strides"] is None else _sizes(text, match["strides"], 64)
    if strides is not None and len(strides) != len(shape):
        raise UsageError(f"--arg: `{text}` has {len(shape)} dimensions and {len(strides)} strides")
    return {
        "name": name,
        "kind": "tensor",
        "dtype": match["dtype"],
        "align": int(match["align"] or 0),
        "shape": shape,
        "strides": strides,
    }


def _sizes(text: str, listed: str, bits: int) -> list[Any]:
    parts = [part.strip() for part in listed.split(",")]
    if not all(parts):
        raise UsageError(f"--arg: `{text}` lacks a size", hint=_FORMS)
    return [int(part) if part.isdecimal() else _size(text, part, bits) for part in parts]


def _size(text: str, part: str, bits: int) -> dict[str, Any]:
    match = _SIZE.fullmatch(part)
    if match is None or not match["name"]:
        raise UsageError(f"--arg: `{text}`: `{part}` is no size", hint=_FORMS)
    return {"size": match["name"], "bits": bits, "divisor": int(match["divisor"] or 1)}


def _constant(text: str, value: str) -> Any:
    if value in _WORDS:
        return _WORDS[value]
    if value in DTYPES:
        return {"dtype": value}
    if value[0] == value[-1] and value[0] in "'\"" and len(value) > 1:
        return value[1:-1]
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    raise UsageError(f"--arg: `{text}` is neither an argument nor a constant", hint=_FORMS)


def described(arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a header does not say: dtypes, ranks, static extents, which sizes a call hands over."""
    found = []
    for one in arguments:
        if one["kind"] == "tuple":
            found += described(one["items"])
        elif one["kind"] == "tensor":
            found.append({**one, "align": one["align"] or DTYPES[one["dtype"]]})
        else:
            found.append(dict(one))
    return found

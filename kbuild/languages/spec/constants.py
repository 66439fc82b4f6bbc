"""Constants of a kernel that no candidate sets: fixed, or decided by each call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kbuild.config.suggest import one_of
from kbuild.languages.spec.dtypes import DTYPES
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.values import Constant, Scalar

_KEYS = ("value", "choices", "string", "dtype")


def read_constants(table: Mapping[str, Any], scope: Scope, place: Place) -> tuple[Constant, ...]:
    """The constants that a launch sets itself; errors at `place`, the table.

    Args:
        table: constant -> value, expression or table.
        scope: with the constants of candidates, without these.
        place: the `constants` table.
    """
    read = (_constant(name, value, scope, place.at(name)) for name, value in table.items())
    return tuple(constant for constant in read if constant is not None)


def is_scalar(value: Any) -> bool:
    """A scalar that is equal to itself everywhere: not `nan`, not `inf`."""
    return isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _constant(name: str, value: Any, scope: Scope, place: Place) -> Constant | None:
    if isinstance(value, str):
        return _expression(name, value, (), scope, place)
    if not isinstance(value, dict):
        if not is_scalar(value):
            place.error("must be a finite number")
        return Constant(name, value)
    unknown = sorted(value.keys() - set(_KEYS))
    if unknown:
        place.at(unknown[0]).error("unknown key", one_of(unknown[0], _KEYS))
        return None
    if "dtype" in value:
        return _dtype(name, value, scope, place)
    if isinstance(value.get("string"), str) and len(value) == 1:
        return Constant(name, value["string"])
    return _chosen(name, value, scope, place)


def _chosen(name: str, value: Mapping[str, Any], scope: Scope, place: Place) -> Constant | None:
    """An expression with the values that are compiled for."""
    text, choices = value.get("value"), value.get("choices", [])
    if not isinstance(text, (str, int)) or not _are_choices(choices):
        hint = 'e.g. `{ value = "next_pow2(N)", choices = [1024, 2048] }` or `{ string = "gelu" }`'
        place.error("is neither an expression with choices nor a string", hint)
        return None
    return _expression(name, text, tuple(choices), scope, place)


def _dtype(name: str, table: Mapping[str, Any], scope: Scope, place: Place) -> Constant | None:
    """A dtype, or that of a tensor."""
    word = table["dtype"]
    if len(table) == 1 and word in scope.tensors():
        return Constant(name, dtype_of=word)
    if len(table) == 1 and str(word) in DTYPES:
        return Constant(name, dtype=word)
    hint = one_of(str(word), (*scope.tensors(), *DTYPES)) if len(table) == 1 else "keep it alone"
    place.at("dtype").error(f"`{word}` is neither a tensor nor a dtype", hint)
    return None


def _are_choices(value: Any) -> bool:
    """A list of different integers or booleans; it may be empty."""
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        return False
    return len({(type(item), item) for item in value}) == len(value)


def _expression(
    name: str, text: str | int, choices: tuple[Scalar, ...], scope: Scope, place: Place
) -> Constant | None:
    found = scope.expression(text, place)
    if found is None:
        return None
    if found.constant is not None:
        value: Scalar = bool(found.constant) if found.is_condition else found.constant
        return Constant(name, value)
    if not choices and scope.is_condition(found):
        choices = (False, True)
    if not choices:
        hint = f'write `{name} = {{ value = "{text}", choices = [ ... ] }}`'
        place.error(f"`{text}` differs from call to call: which values are compiled for?", hint)
        return None
    return Constant(name, None, found, choices)

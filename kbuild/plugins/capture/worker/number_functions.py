"""Python's functions and types of numbers, as symbols of sizes need them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError

_SYMBOLS = (torch.SymInt, torch.SymFloat)
_FOLDER = str(Path(__file__).parent)
"""Folder of the functions that replace those the author calls."""
_FOLLOWED = {"ceil", "copysign", "fabs", "floor", "fsum", "log2", "prod", "sqrt", "trunc"}
_WAY_ROUND = (
    "compute with `+`, `-`, `*`, `//`, `%`, `math.ceil`, `math.sqrt`, `triton.cdiv` or "
    "`triton.next_power_of_2`"
)


def cdiv(original: Callable[[Any, Any], Any], dividend: Any, divisor: Any) -> Any:
    """Call in place of a DSL's `cdiv`, `original`, which does not take symbols."""
    if isinstance(dividend, torch.SymInt) or isinstance(divisor, torch.SymInt):
        return (dividend + divisor - 1) // divisor
    return original(dividend, divisor)


class _NumberType(type):
    """A type of Python's numbers for `isinstance`: symbols are instances as well."""

    plain: type
    symbol: type
    converted: Callable[[Any], Any]

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (cls.plain, cls.symbol))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, (cls.plain, cls.symbol))

    def __call__(cls, *args: Any, **more: Any) -> Any:
        if args and isinstance(args[0], _SYMBOLS):
            return cls.converted(args[0])
        return cls.plain(*args, **more)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Integer(metaclass=_NumberType):
    plain, symbol, converted = int, torch.SymInt, torch.sym_int


class _Float(metaclass=_NumberType):
    plain, symbol, converted = float, torch.SymFloat, torch.sym_float


NUMBERS: dict[str, Any] = {"int": _Integer, "float": _Float, "print": lambda *_, **__: None}
"""Names in an author's modules: Python's own would decide on the value of a symbol, and say that
a size is no `int`; an op prints nothing."""


class SizeText(str):
    """A size as text: for messages alone."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise CaptureError("decides on the text of a size: compare the number itself")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __hash__ = _refuse
    __len__ = __int__ = __getitem__ = __iter__ = startswith = endswith = isdigit = _refuse


def number_functions() -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Functions of `math`, each with its replacement."""
    yield math.sqrt, partial(_root, math.sqrt)
    yield math.log2, partial(_log2, math.log2)
    for name, function in vars(math).items():
        if callable(function) and name[0] != "_" and name not in _FOLLOWED:
            yield function, partial(_computed, function, name)


def divisions(is_author: Callable[[str], bool]) -> Iterator[tuple[Any, str, Any]]:
    """Divisions that raise an error if the divisor is 0, as Python's do, in the author's code."""
    for kind in _SYMBOLS:
        for name in ("floordiv", "mod", "truediv"):
            for method in (f"__{name}__", f"__r{name}__"):
                if hasattr(kind, method):
                    yield kind, method, _division(method, getattr(kind, method), is_author)


def _division(
    method: str, original: Callable[[Any, Any], Any], is_author: Callable[[str], bool]
) -> Callable[[Any, Any], Any]:
    def divided(number: Any, other: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - the documented way
        divisor = number if method.startswith("__r") else other
        # Torch divides as well, and a decision in its code would be a path of the op.
        is_asked = is_author(file) or file.startswith(_FOLDER)
        if is_asked and isinstance(divisor, _SYMBOLS) and divisor == 0:
            raise ZeroDivisionError("division by zero")
        return original(number, other)

    return divided


def _root(original: Callable[[Any], float], number: Any) -> Any:
    """Replace `math.sqrt`, which does not take symbols."""
    return torch.sym_sqrt(number) if isinstance(number, _SYMBOLS) else original(number)


def _computed(original: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
    """Refuse a function of `math` that has no form for symbols."""
    if any(isinstance(value, _SYMBOLS) for value in args):
        raise CaptureError(f"computes `math.{name}` of a size: {_WAY_ROUND}")
    return original(*args, **more)


def _log2(original: Callable[[Any], float], number: Any) -> Any:
    """Replace `math.log2`, which does not take symbols."""
    if not isinstance(number, torch.SymInt):
        return original(number)
    if number <= 0:
        raise ValueError("math domain error")
    return torch._sym_log2(number)  # noqa: SLF001 - there is no public name


SIZE_METHODS: Mapping[str, Any] = {
    "bit_length": lambda number: math.ceil(torch._sym_log2(abs(number) + 1)),  # noqa: SLF001
    "__divmod__": lambda number, other: (number // other, number % other),
    "__rdivmod__": lambda number, other: (other // number, other % number),
}
"""Methods of `int` that Torch's symbols lack, or that would decide on a value."""

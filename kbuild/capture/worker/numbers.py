"""Python's functions of numbers, for symbols as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.symbols import Symbols

_SYMBOLS = (torch.SymInt, torch.SymFloat)
_FOLLOWED = {"ceil", "copysign", "fabs", "floor", "fsum", "log", "log2", "prod", "sqrt", "trunc"}
_WAY_ROUND = (
    "compute with `+`, `-`, `*`, `//`, `%`, `math.ceil`, `math.sqrt`, `triton.cdiv` or "
    "`triton.next_power_of_2`"
)


class _NumberType(type):
    """A type of numbers of Python, which symbols are of as well."""

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
        if args and isinstance(args[0], Exponent):
            return math.floor(args[0])
        return cls.plain(*args, **more)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Integer(metaclass=_NumberType):
    plain, symbol, converted = int, torch.SymInt, torch.sym_int


class _Float(metaclass=_NumberType):
    plain, symbol, converted = float, torch.SymFloat, torch.sym_float


def _divmod(dividend: Any, divisor: Any) -> tuple[Any, Any]:
    """`divmod`, of symbols as well."""
    return dividend // divisor, dividend % divisor


def _printed(*_: Any, **__: Any) -> None:
    """`print`: an op prints nothing."""


NUMBERS: dict[str, Any] = {
    "int": _Integer, "float": _Float, "divmod": _divmod, "print": _printed,
}  # fmt: skip
"""Names in an author's modules: Python's own would decide on the value of a symbol, and say that
a size is no `int`."""


class Exponent:
    """The logarithm of a size to the base of 2, of which only powers have a form."""

    def __init__(self, floor: Any, ceil: Any) -> None:
        self._floor, self._ceil = floor, ceil

    def __ceil__(self) -> Exponent:
        return Exponent(self._ceil, self._ceil)

    def __floor__(self) -> Exponent:
        return Exponent(self._floor, self._floor)

    __trunc__ = __floor__

    def _power(self) -> Any:
        if self._floor is not self._ceil:
            raise CaptureError(f"computes a power of a logarithm that is no integer: {_WAY_ROUND}")
        return self._ceil

    def __rlshift__(self, base: int) -> Any:
        return base * self._power()

    def __rpow__(self, base: int) -> Any:
        if base != 2:  # noqa: PLR2004 - the base of the logarithm
            raise CaptureError(f"computes a power of {base} with a logarithm: {_WAY_ROUND}")
        return self._power()

    def __add__(self, number: int) -> Exponent:
        return Exponent(self._floor * 2**number, self._ceil * 2**number)

    __radd__ = __add__

    def __sub__(self, number: int) -> Exponent:
        if self._floor is not self._ceil:
            raise CaptureError(f"subtracts from a logarithm: {_WAY_ROUND}")
        power = self._floor // 2**number
        return Exponent(power, power)

    def _refuse(self, *_: Any) -> Any:
        raise CaptureError(f"computes with the logarithm of a size: {_WAY_ROUND}")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = _refuse
    __int__ = __index__ = __float__ = __bool__ = __truediv__ = __floordiv__ = __rsub__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class SizeText(str):
    """A size as text: for messages alone."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise CaptureError("decides on the text of a size: compare the number itself")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __hash__ = _refuse
    __len__ = __int__ = __getitem__ = __iter__ = startswith = endswith = isdigit = _refuse


def number_functions(symbols: Symbols) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Functions of `math`, each with what stands in its place."""

    def logarithm(number: Any) -> Exponent:
        return Exponent(symbols.power_of_2(number + 1) // 2, symbols.power_of_2(number))

    def log2(original: Callable[[Any], float], number: Any) -> Any:
        return logarithm(number) if isinstance(number, torch.SymInt) else original(number)

    def log(original: Callable[..., float], number: Any, *base: Any) -> Any:
        if isinstance(number, torch.SymInt) and base == (2,):
            return logarithm(number)
        return _computed(original, "log", number, *base)

    yield math.sqrt, partial(_root, math.sqrt)
    yield math.log2, partial(log2, math.log2)
    yield math.log, partial(log, math.log)
    for name, function in vars(math).items():
        if callable(function) and name[0] != "_" and name not in _FOLLOWED:
            yield function, partial(_computed, function, name)


def bit_length(symbols: Symbols, number: Any) -> Exponent:
    """`int.bit_length` of a symbol."""
    power = symbols.power_of_2(number + 1)
    return Exponent(power, power)


def _root(original: Callable[[Any], float], number: Any) -> Any:
    """`math.sqrt`, of symbols as well."""
    return torch.sym_sqrt(number) if isinstance(number, _SYMBOLS) else original(number)


def _computed(original: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
    """A function of `math` that has no form for symbols."""
    if any(isinstance(value, (*_SYMBOLS, Exponent)) for value in args):
        raise CaptureError(f"computes `math.{name}` of a size: {_WAY_ROUND}")
    return original(*args, **more)

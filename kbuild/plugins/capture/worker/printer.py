"""Writes expressions of sympy in the language of `build.toml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.value_ranges import ValueRanges

from kbuild.plugins.capture.programs import CaptureError


class UnprintableError(CaptureError):
    """An expression that `build.toml` has no way to write."""

    def __init__(self, expression: Any, texts: Mapping[sympy.Symbol, str]) -> None:
        names = {symbol: sympy.Symbol(text) for symbol, text in texts.items()}
        known = isinstance(expression, sympy.Basic)
        text = str(expression.xreplace(names) if known else expression)
        # Users wrote `sqrt`, which Torch 2's sympy functions call `OpaqueUnaryFn_sqrt`.
        text = re.sub(r"OpaqueUnaryFn_|BitwiseFn_|ToInt\b|ToFloat\b", "", text)
        super().__init__(f"computes `{text}`, which has no form in an expression: {_REMEDY}")


_REMEDY = (
    "use `+ - * // %`, `min`, `max`, `triton.cdiv` or `triton.next_power_of_2` of whole numbers, "
    "or pass it as an argument"
)


_SUM, _PRODUCT, _POWER, _ATOM = 1, 2, 3, 4
_COMPARISON = 0
_TWO = sympy.Integer(2)
_LARGEST_DENOMINATOR = 1 << 10
"""Largest denominator of a float that is a factor of a size: allows 0.5, not 0.1."""
_MOST_FACTORS = 8
"""Powers are written as products of so many factors."""


class Printer:
    """Writes expressions; parentheses by precedence."""

    def __init__(
        self,
        texts: Mapping[sympy.Symbol, str],
        bounds: Callable[[Any], ValueRanges[Any]],
    ) -> None:
        self._texts, self._bounds = texts, bounds

    def print(self, expression: Any) -> str:
        """The text of an expression.

        Raises:
            CaptureError: it has none.
        """
        return self._written(expression)[0]

    def _inside(self, expression: Any, least: int) -> str:
        text, level = self._written(expression)
        return text if level >= least else f"({text})"

    def _written(self, expression: Any) -> tuple[str, int]:  # noqa: PLR0911
        if isinstance(expression, sympy.Symbol):
            if expression not in self._texts:
                raise CaptureError("computes with what is in a tensor: pass it as an argument")
            text = self._texts[expression]
            return text, _ATOM
        # Before numbers: to Python, `True` is an integer.
        if expression is sympy.true or expression is True:
            return "True", _ATOM
        if expression is sympy.false or expression is False:
            return "False", _ATOM
        if isinstance(expression, (int, sympy.Integer)):
            return str(int(expression)), _ATOM if expression >= 0 else _SUM
        if isinstance(expression, (float, sympy.Float)):
            return repr(float(expression)), _ATOM if expression >= 0 else _SUM
        if isinstance(expression, sympy.Rational):
            return f"{expression.p} / {expression.q}", _PRODUCT
        for kind, write in self._writers().items():
            if isinstance(expression, kind):
                return write(expression)
        raise UnprintableError(expression, self._texts)

    def _writers(self) -> Mapping[Any, Callable[[Any], tuple[str, int]]]:
        infix = {
            sympy.Eq: "==", sympy.Ne: "!=", sympy.StrictLessThan: "<", sympy.LessThan: "<=",
            sympy.StrictGreaterThan: ">", sympy.GreaterThan: ">=",
        }  # fmt: skip
        # As a default, `sign` is bound at once, while the loop goes on changing it.
        comparisons = {
            kind: lambda e, sign=sign: self._compared(e, sign) for kind, sign in infix.items()
        }
        functions = torch_functions
        return {
            **comparisons,
            sympy.And: lambda e: self._joined(" and ", e.args),
            sympy.Or: lambda e: self._joined(" or ", e.args),
            sympy.Not: lambda e: (f"not {self._inside(e.args[0], _ATOM)}", _COMPARISON),
            functions.Max: lambda e: self._called("max", e.args),
            functions.Min: lambda e: self._called("min", e.args),
            sympy.Max: lambda e: self._called("max", e.args),
            sympy.Min: lambda e: self._called("min", e.args),
            functions.CeilToInt: lambda e: self._ceiling_division(*self._quotient(e)),
            functions.FloorToInt: lambda e: self._operator("//", self._quotient(e)),
            functions.TruncToInt: self._truncated,
            functions.RoundToInt: self._rounded_to_even,
            functions.FloorDiv: self._floor_division,
            functions.CleanDiv: self._floor_division,
            functions.Mod: lambda e: self._operator("%", e.args),
            functions.PythonMod: lambda e: self._operator("%", e.args),
            functions.IntTrueDiv: lambda e: self._operator("/", e.args),
            functions.FloatTrueDiv: lambda e: self._operator("/", e.args),
            functions.ToFloat: lambda e: self._operator("/", (e.args[0], 1)),
            functions.Identity: lambda e: self._written(e.args[0]),
            functions.Where: self._conditional,
            sympy.Piecewise: self._piecewise,
            functions.PowByNatural: self._power,
            functions.FloatPow: self._power,
            functions.OpaqueUnaryFn_sqrt: lambda e: self._called("sqrt", e.args),
            functions.LShift: lambda e: self._written(
                sympy.Mul(e.args[0], functions.PowByNatural(2, e.args[1]))
            ),
            sympy.Abs: self._absolute,
            functions.BitwiseFn_bitwise_and: self._masked,
            sympy.Add: self._sum,
            sympy.Mul: self._product,
            sympy.Pow: self._power,
        }

    def _compared(self, expression: Any, sign: str) -> tuple[str, int]:
        left, right = expression.lhs, expression.rhs
        if isinstance(left, torch_functions.BitwiseFn_bitwise_and) and right == 0:
            # Sympy orders arguments in its own way: the one with more operations is `n - 1`.
            number = max(left.args, key=sympy.count_ops) + 1
            if number in left.args and number - 1 in left.args and self._is_least(number, 0):
                # `n & (n - 1) == 0` holds for powers of two, and for 0.
                text = self.print(number)
                return f"next_pow2({text}) {sign} max({text}, 1)", _COMPARISON
        return f"{self._inside(left, _SUM)} {sign} {self._inside(right, _SUM)}", _COMPARISON

    def _joined(self, word: str, parts: Iterable[Any]) -> tuple[str, int]:
        # The level is below that of comparisons: `not` and conditionals need parentheses around it.
        texts = sorted(self._written(part)[0] for part in parts)
        return word.join(f"({t})" if " and " in t or " or " in t else t for t in texts), -1

    def _called(self, name: str, arguments: Iterable[Any]) -> tuple[str, int]:
        written = sorted((self._written(a)[0] for a in arguments), key=lambda t: (t.isdigit(), t))
        return f"{name}({', '.join(written)})", _ATOM

    def _operator(self, sign: str, arguments: Any) -> tuple[str, int]:
        left, right = arguments
        return f"{self._inside(left, _PRODUCT)} {sign} {self._inside(right, _POWER)}", _PRODUCT

    def _floor_division(self, expression: Any) -> tuple[str, int]:
        dividend, divisor = expression.args
        # `(n + d - 1) // d` is `cdiv(n, d)`, as authors mean it, where `d` is not negative.
        rest = sympy.expand(dividend - (divisor - 1))
        is_sum = isinstance(dividend, sympy.Add) and len(rest.args) <= len(dividend.args)
        is_rounded_up = is_sum and divisor != 1 and _is_simpler(rest, dividend)
        if is_rounded_up and self._is_least(divisor, 0):
            return self._ceiling_division(rest, divisor)
        return self._operator("//", expression.args)

    def _quotient(self, expression: Any) -> tuple[Any, Any]:
        """Numerator and denominator of a quotient that is rounded.

        Python divides in 64-bit floats, which is exact enough: sizes are far below 2**53.
        """
        factor, number = expression.args[0].as_coeff_Mul()
        ratio = Fraction(float(factor))
        is_quotient = isinstance(number, (torch_functions.IntTrueDiv, torch_functions.FloatTrueDiv))
        parts = [
            part.args[0] if isinstance(part, torch_functions.ToFloat) else part
            for part in (number.args if is_quotient else (number, sympy.Integer(1)))
        ]
        parts = [sympy.Integer(int(p)) if p.is_number and int(p) == float(p) else p for p in parts]
        if ratio.denominator > _LARGEST_DENOMINATOR or not all(part.is_integer for part in parts):
            raise UnprintableError(expression, self._texts)
        return parts[0] * ratio.numerator, parts[1] * ratio.denominator

    def _ceiling_division(self, dividend: Any, divisor: Any) -> tuple[str, int]:
        return f"cdiv({self.print(dividend)}, {self.print(divisor)})", _ATOM

    def _truncated(self, expression: Any) -> tuple[str, int]:
        """`int(a / b)`, which rounds towards zero."""
        dividend, divisor = self._quotient(expression)
        down = self._operator("//", (dividend, divisor))
        if self._is_least(divisor, 1) and self._is_least(dividend, 0):
            return down
        up = self._ceiling_division(dividend, divisor)[0]
        has_sign = f"{self._inside(dividend, _SUM)} >= 0"
        if not self._is_least(divisor, 1):
            has_sign = f"({has_sign}) == ({self._inside(divisor, _SUM)} > 0)"
        return f"({down[0]} if {has_sign} else {up})", _ATOM

    def _rounded_to_even(self, expression: Any) -> tuple[str, int]:
        """Text of `round(a / b)`: ties go to the even number."""
        dividend, divisor = self._quotient(expression)
        if not self._is_least(divisor, 1):
            raise UnprintableError(expression, self._texts)
        nearest = self._operator("//", (2 * dividend + divisor, 2 * divisor))
        # An odd divisor has no ties.
        if divisor.is_odd:
            return nearest
        below = self._operator("//", (dividend, divisor))[0]
        rest = self._operator("%", (dividend, divisor))[0]
        is_between = f"2 * ({rest}) == {self.print(divisor)}"
        return f"({below} + {below} % 2 if {is_between} else {nearest[0]})", _ATOM

    def _is_least(self, expression: Any, least: int) -> bool:
        return bool(self._bounds(expression).lower >= least)

    def _absolute(self, expression: Any) -> tuple[str, int]:
        (number,) = expression.args
        if self._is_least(number, 0):
            return self._written(number)
        return self._called("max", (number, -number))

    def _masked(self, expression: Any) -> tuple[str, int]:
        """Text of `a & 15` and `a & -16`."""
        number, mask = sorted(expression.args, key=lambda part: part.is_number)
        # The lowest bits: the remainder by a power of two, also of negative numbers in Python.
        if mask.is_Integer and mask >= 0 and (mask + 1) & mask == 0:
            return self._operator("%", (number, mask + 1))
        # All but the lowest bits: the next multiple of a power of two that is not larger.
        if mask.is_Integer and mask < 0 and -mask & (-mask - 1) == 0:
            return f"{self._operator('//', (number, -mask))[0]} * {-mask}", _PRODUCT
        raise UnprintableError(expression, self._texts)

    def _conditional(self, expression: Any) -> tuple[str, int]:
        condition, yes, no = expression.args
        written = (self._inside(part, _SUM) for part in (yes, condition, no))
        return "({} if {} else {})".format(*written), _ATOM

    def _piecewise(self, expression: Any) -> tuple[str, int]:
        """Text of the expression that `torch.sym_ite` creates."""
        *choices, (last, condition) = expression.args
        if condition != sympy.true:
            raise UnprintableError(expression, self._texts)
        text = self._inside(last, _SUM)
        for yes, condition in reversed(choices):
            text = f"({self._inside(yes, _SUM)} if {self._inside(condition, _SUM)} else {text})"
        return text, _ATOM

    def _power(self, expression: Any) -> tuple[str, int]:
        base, exponent = expression.args
        if base == _TWO and not exponent.is_number:
            return self._power_of_2(exponent)
        half = sympy.Rational(1, 2)
        if exponent in (half, float(half)):
            return self._called("sqrt", [base])
        if exponent in (-half, -float(half)):
            return f"1.0 / {self._called('sqrt', [base])[0]}", _PRODUCT
        if exponent == -1:
            return f"1.0 / {self._inside(base, _POWER)}", _PRODUCT
        if exponent.is_Integer and 0 < exponent <= _MOST_FACTORS:
            return " * ".join([self._inside(base, _POWER)] * int(exponent)), _PRODUCT
        raise UnprintableError(expression, self._texts)

    def _power_of_2(self, exponent: Any) -> tuple[str, int]:
        """Text of two to the power of a rounded logarithm."""
        shift, logarithm = exponent.as_coeff_Add()
        number = logarithm.args[0].args[0].args[0] if _is_rounded_log2(logarithm) else sympy.nan
        if not self._is_least(number, 1) or not self._is_least(exponent, 0):
            raise UnprintableError(2**exponent, self._texts)
        if not isinstance(logarithm, torch_functions.CeilToInt):
            # `2 ** floor(log2(n))` is `next_pow2(n + 1) // 2`.
            number, shift = number + 1, shift - 1
        text = f"next_pow2({self.print(number)})"
        if not shift:
            return text, _ATOM
        return f"{text} {'*' if shift > 0 else '//'} {2 ** abs(int(shift))}", _PRODUCT

    def _sum(self, expression: Any) -> tuple[str, int]:
        text = ""
        for part in sorted(expression.args, key=lambda a: (a.is_number, _is_negative(a), str(a))):
            if not text:
                text = self._inside(part, _SUM)
            elif _is_negative(part):
                text += f" - {self._inside(-part, _PRODUCT)}"
            else:
                text += f" + {self._inside(part, _PRODUCT)}"
        return text, _SUM

    def _product(self, expression: Any) -> tuple[str, int]:
        coefficient, rest = expression.as_coeff_Mul()
        if coefficient == -1:
            return f"-{self._inside(rest, _POWER)}", _SUM
        parts = sorted(expression.args, key=lambda a: (not a.is_number, str(a)))
        return " * ".join(self._inside(part, _POWER) for part in parts), _PRODUCT


def _is_rounded_log2(expression: Any) -> bool:
    kinds = (torch_functions.CeilToInt, torch_functions.FloorToInt, torch_functions.TruncToInt)
    return isinstance(expression, kinds) and isinstance(
        expression.args[0], torch_functions.OpaqueUnaryFn_log2
    )


def _is_negative(expression: Any) -> bool:
    return bool(expression.as_coeff_Mul()[0] < 0)


def _is_simpler(first: Any, second: Any) -> bool:
    return bool(sympy.count_ops(first) < sympy.count_ops(second))

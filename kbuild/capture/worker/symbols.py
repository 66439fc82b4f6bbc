"""Symbols of a captured call, and their expressions in the language of `build.toml`.

Sizes, strides and numbers of a call are symbols of Torch's `ShapeEnv`. Each has an example value,
the hint, under which a run takes one path; every condition that the run decides is kept as a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.value_ranges import ValueRanges

from kbuild.capture.expression_values import next_power_of_2

LARGEST = 2**62
"""The largest value of a symbol without a bound of its own."""


BATCH = ("dim_0", "dim_1", "dim_2")
"""Names of the dimensions that `...` stands for, and `ROWS` of their product."""
ROWS = "rows"


class UnprintableError(Exception):
    """An expression that `build.toml` has no way to write; the argument is the expression."""


class Environment(ShapeEnv):  # type: ignore[misc]
    """Torch's conditions and ranges of symbols; expressions keep the symbols that they are of.

    Torch would write `1` for `N` where a run has decided that `N == 1`: other paths would have
    other shapes.
    """

    def evaluate_expr(self, orig_expr: sympy.Basic, *args: Any, **more: Any) -> Any:
        """Decide no condition that follows from sizes that the run has decided on: `N == 64`."""
        if isinstance(orig_expr, sympy.logic.boolalg.Boolean):
            equal = (guard.expr for guard in self.guards if isinstance(guard.expr, sympy.Eq))
            known = {e.lhs: e.rhs for e in equal if e.lhs.is_Symbol and e.rhs.is_Integer}
            decided = orig_expr.xreplace(known)
            if decided in (sympy.true, sympy.false):
                return decided
        return super().evaluate_expr(orig_expr, *args, **more)

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        """Put nothing in the place of a symbol."""


@dataclass
class Symbols:
    """The symbols of one run."""

    hints: Mapping[str, int | float]
    """Expression of a call, such as `size(x, 0)` -> the example value of this run."""
    env: ShapeEnv = field(
        default_factory=lambda: Environment(
            specialize_zero_one=False, duck_shape=False, allow_scalar_outputs=False
        )
    )
    texts: dict[sympy.Symbol, str] = field(default_factory=dict)
    """Symbol -> what it is in an expression."""
    derived: dict[sympy.Expr, Any] = field(default_factory=dict)
    """Powers of two: the argument of `next_power_of_2` -> its value, `torch.SymInt`."""
    named: dict[str, Any] = field(default_factory=dict)
    """Expression of a call -> `torch.SymInt` or `torch.SymFloat`."""

    def integer(self, text: str, least: int = 0, most: int = LARGEST) -> Any:
        """The symbol of an integer, `torch.SymInt`; the same one when it is asked for again.

        Args:
            text: what the integer is in an expression.
            least: the smallest value.
            most: the largest value.
        """
        if text in self.named:
            return self.named[text]
        hint = int(self.hints.get(text, least or 1))
        self.hints = {**self.hints, text: hint}
        symbol = self.env.create_symbol(
            hint,
            ConstantSource(f"v{len(self.named)}"),
            dynamic_dim=DimDynamic.DYNAMIC,
            positive=True if least >= 0 else None,
            do_not_specialize_zero_one=True,
        )
        self.env.var_to_range[symbol] = ValueRanges(least, most)
        self.texts[symbol] = text
        node = self.env.create_symintnode(symbol, hint=hint)
        self.named[text] = node
        return node

    def strides(self, tensor: str, sizes: Sequence[Any]) -> list[Any]:
        """Symbols of the strides of a tensor that may have any."""
        axes = reversed(range(len(sizes)))
        return [self.integer(f"stride({tensor}, {axis})", 0, 2**31 - 1) for axis in axes][::-1]

    def number(self, text: str) -> Any:
        """The symbol of a floating-point argument, `torch.SymFloat`."""
        if text not in self.named:
            hint = float(self.hints[text])
            source = ConstantSource(f"v{len(self.named)}")
            symbol = self.env.create_symbol(
                hint, source, dynamic_dim=DimDynamic.DYNAMIC, positive=None
            )
            self.texts[symbol] = text
            self.named[text] = self.env.create_symfloatnode(symbol, hint=hint, source=source)
        return self.named[text]

    def power_of_2(self, number: Any) -> Any:
        """`triton.next_power_of_2`, of a symbol as well."""
        if not isinstance(number, torch.SymInt):
            return next_power_of_2(int(number))
        expression = self.env.replace(number.node.expr)
        if expression.is_number:
            return next_power_of_2(int(expression))
        if expression not in self.derived:
            text = f"next_pow2({self.text(expression)})"
            bounds = self.env.bound_sympy(expression)
            most = int(bounds.upper) if bounds.upper.is_finite else LARGEST
            hint = next_power_of_2(int(number.node.hint))
            symbol = self.env.create_symbol(
                hint,
                ConstantSource(f"p{len(self.derived)}"),
                dynamic_dim=DimDynamic.DYNAMIC,
                do_not_specialize_zero_one=True,
            )
            self.env.var_to_range[symbol] = ValueRanges(1, min(next_power_of_2(most), LARGEST))
            self.texts[symbol] = text
            self.derived[expression] = self.env.create_symintnode(symbol, hint=hint)
        return self.derived[expression]

    def text_of(self, value: Any) -> str:
        """A number of a run as an expression: `int`, `bool`, `float` or one of Torch's symbols."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return self.text(self.env.replace(value.node.expr))
        return repr(value)

    def text(self, expression: Any) -> str:
        """An expression of sympy as one of `build.toml`.

        Raises:
            UnprintableError: it has no form there.
        """
        return _Printer(self.texts).print(self._with_rows(self._divided(expression)))

    def _divided(self, expression: Any) -> Any:
        """With quotients of products without a rest as products: `N * M // N` is `M`."""
        if not isinstance(expression, sympy.Basic):
            return expression
        quotients = {}
        for part in expression.atoms(torch_functions.FloorDiv):
            dividend, divisor = part.args
            quotient = sympy.cancel(dividend / divisor)
            if (
                sympy.fraction(sympy.together(quotient))[1] == 1
                and self.env.bound_sympy(divisor).lower >= 1
            ):
                quotients[part] = quotient
        return expression.xreplace(quotients) if quotients else expression

    def _with_rows(self, expression: Any) -> Any:
        """With the product of the dimensions of `...` as one symbol, if there is nothing else."""
        own = [symbol for symbol, text in self.texts.items() if text in BATCH]
        first, *others = own or [None]
        if not isinstance(expression, sympy.Basic) or not others:
            return expression
        if not {*own} <= expression.free_symbols:
            return expression
        rows = sympy.Symbol("rows", integer=True, positive=True)
        self.texts[rows] = ROWS
        try:
            replaced = expression.xreplace({first: rows / sympy.Mul(*others)})
            replaced = replaced.doit() if hasattr(replaced, "doit") else replaced
        except (AssertionError, TypeError, ValueError):
            return expression
        return expression if replaced.free_symbols & {*own} else replaced

    def guards(self) -> list[str]:
        """The conditions that the run decided, in order; all hold for its hints."""
        certain = (sympy.Eq, sympy.Ne)
        expressions = (self._divided(guard.expr) for guard in self.env.guards)
        texts = (
            self.text(e)
            for e in expressions
            if not isinstance(e, certain) or sympy.expand(e.lhs - e.rhs) != 0
        )
        return list(dict.fromkeys(text for text in texts if not _is_certain(text)))


def _is_certain(condition: str) -> bool:
    """`True`, and `x <= next_pow2(x)`, which Torch's value ranges cannot see."""
    left, sign, right = condition.partition(" <= ")
    return condition == "True" or bool(sign and right == f"next_pow2({left})")


_SUM, _PRODUCT, _POWER, _ATOM = 1, 2, 3, 4
_COMPARISON = 0
_MOST_FACTORS = 8
"""Powers are written as products of so many factors."""


class _Printer:
    """Writes expressions; parentheses by precedence."""

    def __init__(self, texts: Mapping[sympy.Symbol, str]) -> None:
        self._texts = texts

    def print(self, expression: Any) -> str:
        return self._written(expression)[0]

    def _inside(self, expression: Any, least: int) -> str:
        text, level = self._written(expression)
        return text if level >= least else f"({text})"

    def _written(self, expression: Any) -> tuple[str, int]:  # noqa: PLR0911
        if isinstance(expression, sympy.Symbol):
            if expression not in self._texts:
                raise UnprintableError(str(expression))
            text = self._texts[expression]
            return text, _ATOM
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
        raise UnprintableError(str(expression))

    def _writers(self) -> Mapping[Any, Callable[[Any], tuple[str, int]]]:
        infix = {
            sympy.Eq: "==", sympy.Ne: "!=", sympy.StrictLessThan: "<", sympy.LessThan: "<=",
            sympy.StrictGreaterThan: ">", sympy.GreaterThan: ">=",
        }  # fmt: skip
        comparisons = {
            kind: lambda e, sign=sign: (
                f"{self._inside(e.lhs, _SUM)} {sign} {self._inside(e.rhs, _SUM)}",
                _COMPARISON,
            )
            for kind, sign in infix.items()
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
            functions.CeilToInt: lambda e: self._rounded(e, up=True),
            functions.FloorToInt: lambda e: self._rounded(e, up=False),
            functions.TruncToInt: lambda e: self._rounded(e, up=False),
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
            sympy.Abs: lambda e: self._called("abs", e.args),
            sympy.Add: self._sum,
            sympy.Mul: self._product,
            sympy.Pow: self._power,
        }

    def _joined(self, word: str, parts: Iterable[Any]) -> tuple[str, int]:
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
        rest = sympy.expand(dividend - (divisor - 1))
        if isinstance(dividend, sympy.Add) and len(rest.args) < len(dividend.args) + 1:
            plain = dividend.args and (divisor - 1) != 0
            if plain and _is_simpler(rest, dividend):
                arguments = f"{self._written(rest)[0]}, {self._written(divisor)[0]}"
                return f"cdiv({arguments})", _ATOM
        return self._operator("//", expression.args)

    def _rounded(self, expression: Any, *, up: bool) -> tuple[str, int]:
        """`math.ceil(a / b)`; both are below 2**53 wherever they are sizes."""
        (quotient,) = expression.args
        if not isinstance(quotient, (torch_functions.IntTrueDiv, torch_functions.FloatTrueDiv)):
            raise UnprintableError(str(expression))
        if not up:
            return self._operator("//", quotient.args)
        dividend, divisor = (self._written(part)[0] for part in quotient.args)
        return f"cdiv({dividend}, {divisor})", _ATOM

    def _conditional(self, expression: Any) -> tuple[str, int]:
        condition, yes, no = expression.args
        written = (self._inside(part, _SUM) for part in (yes, condition, no))
        return "({} if {} else {})".format(*written), _ATOM

    def _piecewise(self, expression: Any) -> tuple[str, int]:
        """What `torch.sym_ite` makes."""
        (yes, condition), *others = expression.args
        if len(others) != 1 or others[0][1] != sympy.true:
            raise UnprintableError(str(expression))
        written = (self._inside(part, _SUM) for part in (yes, condition, others[0][0]))
        return "({} if {} else {})".format(*written), _ATOM

    def _power(self, expression: Any) -> tuple[str, int]:
        base, exponent = expression.args
        half = sympy.Rational(1, 2)
        if exponent in (half, float(half)):
            return self._called("sqrt", [base])
        if exponent in (-half, -float(half)):
            return f"1.0 / {self._called('sqrt', [base])[0]}", _PRODUCT
        if exponent == -1:
            return f"1.0 / {self._inside(base, _POWER)}", _PRODUCT
        if exponent.is_Integer and 0 < exponent <= _MOST_FACTORS:
            return " * ".join([self._inside(base, _POWER)] * int(exponent)), _PRODUCT
        raise UnprintableError(str(expression))

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


def _is_negative(expression: Any) -> bool:
    return bool(expression.as_coeff_Mul()[0] < 0)


def _is_simpler(first: Any, second: Any) -> bool:
    return bool(sympy.count_ops(first) < sympy.count_ops(second))

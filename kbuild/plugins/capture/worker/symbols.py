"""Symbols of a captured call, and their expressions in `build.toml`.

Sizes, strides and numbers of a call are symbols of Torch's `ShapeEnv`. Each has an example value,
the hint, under which a run takes one path; every condition that the run decides is kept as a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.value_ranges import ValueRanges

from kbuild.plugins.capture.values import BATCH, ROWS, next_power_of_2
from kbuild.plugins.capture.worker.printer import Printer, UnprintableError
from kbuild.plugins.capture.worker.runs import Bounds
from kbuild.plugins.capture.worker.tensors import extent_of

LARGEST = 2**62
"""The largest value of a symbol without a bound of its own."""
_LAST_SHIFT = 16
"""The shift after which `n | n >> 1 | ...` has set all lower bits of a number of 32 bits."""
# Taken before runs put `Symbols.bitwise_or` in its place, which calls it.
_OR = torch.SymInt.__or__


class Environment(ShapeEnv):  # type: ignore[misc]
    """Torch's conditions and ranges of symbols; expressions keep the symbols that they are of.

    Torch would write `1` for `N` where a run has decided that `N == 1`: other paths would have
    other shapes.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.place: Callable[[], str] = str
        """The author's line that is running."""
        self.places: list[str] = []
        """The line of each guard."""

    def evaluate_expr(self, orig_expr: sympy.Basic, *args: Any, **more: Any) -> Any:
        """Decide no condition that follows from sizes that the run has decided on: `N == 64`."""
        # Otherwise the run would have a guard, and so a path, for what is decided already.
        if isinstance(orig_expr, sympy.logic.boolalg.Boolean):
            equal = (guard.expr for guard in self.guards if isinstance(guard.expr, sympy.Eq))
            known = {e.lhs: e.rhs for e in equal if e.lhs.is_Symbol and e.rhs.is_Integer}
            decided = orig_expr.xreplace(known)
            if decided in (sympy.true, sympy.false):
                return decided
        result = super().evaluate_expr(orig_expr, *args, **more)
        self.places += [self.place()] * (len(self.guards) - len(self.places))
        return result

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        """Put nothing in the place of a symbol."""


@dataclass
class Symbols:
    """The symbols of one run."""

    hints: Mapping[str, int | float]
    """Expression of a call, such as `size(x, 0)` -> the example value of this run."""
    bounds: MutableMapping[str, Bounds] = field(default_factory=dict)
    """Expression of a call -> its smallest and its largest value; every integer is added."""
    # Torch must neither take 0 and 1 for constants, nor two sizes that are equal in this run for
    # one symbol.
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
    smeared: dict[sympy.Expr, tuple[Any, int]] = field(default_factory=dict)
    """`n | n >> 1 ...` -> `n`, and the next shift that an author makes to set all lower bits."""

    def integer(self, text: str, least: int = 0, most: int = LARGEST) -> Any:
        """The symbol of an integer, `torch.SymInt`; the same one when it is asked for again."""
        if text in self.named:
            return self.named[text]
        hint = int(self.hints.get(text, least or 1))
        self.hints = {**self.hints, text: hint}
        symbol = self.env.create_symbol(
            hint,
            ConstantSource(f"v{len(self.named)}"),
            dynamic_dim=DimDynamic.DYNAMIC,
            positive=True if least > 0 else None,
            do_not_specialize_zero_one=True,
        )
        self.env.var_to_range[symbol] = ValueRanges(least, most)
        self.bounds.setdefault(text, Bounds(least, most))
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

    def bitwise_or(self, number: Any, other: Any) -> Any:
        """`n | n >> 1`; after shifts by 1, 2, 4, 8 and 16, one less than a power of two."""
        first, shift = self.smeared.get(self.env.replace(number.node.expr), (number, 1))
        bounds = self.env.bound_sympy(first.node.expr)
        is_shift = isinstance(other, torch.SymInt) and bounds.lower >= 0 and bounds.upper < 2**32
        if not is_shift or (number >> shift).node.expr != other.node.expr:
            return _OR(number, other)
        if shift < _LAST_SHIFT:
            result = _OR(number, other)
        else:  # a further shift adds no bit
            result = self.power_of_2(first + 1) - 1 if shift == _LAST_SHIFT else number
        self.smeared[self.env.replace(result.node.expr)] = (first, 2 * shift)
        return result

    def text_of(self, value: Any) -> str:
        """A number of a run as an expression: `int`, `bool`, `float` or one of Torch's symbols."""
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return self.text(self.env.replace(value.node.expr))
        return repr(value)

    def text_of_extent(self, tensor: torch.Tensor) -> str:
        """Number of elements from the first to the last one of a tensor, both included."""
        extent, count = (
            number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)
            for number in (extent_of(tensor.shape, tensor.stride()), tensor.numel())
        )
        # A dense tensor: its number of elements is the shorter expression.
        if sympy.expand(extent - count) == 0:
            return self.text(count)
        return f"({self.text(extent)} if {self.text(count)} > 0 else 0)"

    def text(self, expression: Any) -> str:
        """An expression of sympy as one of `build.toml`.

        Raises:
            UnprintableError: it has no form there.
        """
        printer = Printer(self.texts, self.env.bound_sympy)
        return printer.print(self._with_rows(self._divided(expression)))

    def _divided(self, expression: Any) -> Any:
        """Replace exact quotients of products by products: `N * M // N` becomes `M`."""
        if not isinstance(expression, sympy.Basic):
            return expression
        quotients = {}
        for part in expression.atoms(torch_functions.FloorDiv):
            dividend, divisor = part.args
            quotient = sympy.cancel(dividend / divisor)
            # Where the divisor may be 0, the quotient may be an error, which the product hides.
            if (
                sympy.fraction(sympy.together(quotient))[1] == 1
                and self.env.bound_sympy(divisor).lower >= 1
            ):
                quotients[part] = quotient
        return expression.xreplace(quotients) if quotients else expression

    def _with_rows(self, expression: Any) -> Any:
        """Replace the product of the dimensions of `...` by one symbol, if no other use is left."""
        own = [symbol for symbol, text in self.texts.items() if text in BATCH]
        first, *others = own or [None]
        if not isinstance(expression, sympy.Basic) or not others:
            return expression
        if not {*own} <= expression.free_symbols:
            return expression
        rows = sympy.Symbol(ROWS, integer=True, nonnegative=True)
        self.texts[rows] = ROWS
        try:
            replaced = expression.xreplace({first: rows / sympy.Mul(*others)})
            replaced = replaced.doit() if hasattr(replaced, "doit") else replaced
        except (AssertionError, TypeError, ValueError):
            return expression
        # A dimension is left by itself, so the expression does not depend on the product alone.
        return expression if replaced.free_symbols & {*own} else replaced

    def guards(self) -> list[str]:
        """The conditions that the run decided, in order; all hold for its hints.

        Raises:
            UnprintableError: one has no form in `build.toml`; with the line that decides on it.
        """
        texts: dict[str, None] = {}
        for guard, place in zip(self.env.guards, self.env.places, strict=True):
            expression = _solved(self._divided(guard.expr))
            is_equality = isinstance(expression, (sympy.Eq, sympy.Ne))
            if is_equality and sympy.expand(expression.lhs - expression.rhs) == 0:
                continue
            try:
                text = self.text(expression)
            except UnprintableError as error:
                error.place = place
                raise
            # `x <= next_pow2(x)` always holds, which Torch's value ranges cannot see.
            left, _, right = text.partition(" <= ")
            if text != "True" and right != f"next_pow2({left})":
                texts[text] = None
        return list(texts)


def _solved(expression: Any) -> Any:
    """`1.0 - p == 0.0`, as a division asks, as `p == 1.0`: both hold for the same floats."""
    if not isinstance(expression, (sympy.Eq, sympy.Ne)):
        return expression
    difference = expression.lhs - expression.rhs
    symbols = [*difference.free_symbols]
    if len(symbols) != 1 or symbols[0].is_integer:
        return expression
    sign = difference.coeff(symbols[0])
    constant = difference - sign * symbols[0]
    if abs(sign) != 1 or not constant.is_number:
        return expression
    return type(expression)(symbols[0], sympy.Float(-constant / sign))


class Numbers(Symbols):
    """The examples themselves in place of symbols."""

    def integer(self, text: str, least: int = 0, most: int = LARGEST) -> Any:  # noqa: ARG002
        """The example of an integer."""
        self.hints = {**self.hints, text: int(self.hints.get(text, least or 1))}
        return self.hints[text]

    def number(self, text: str) -> Any:
        """The example of a floating-point argument."""
        return float(self.hints[text])

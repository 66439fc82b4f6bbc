"""Integer expressions of `build.toml`: grids, sizes, predicates.

A small subset of Python over 64-bit integers: `+ - * // %`, comparisons, `and`, `or`, `not`,
`a if c else b`, a few functions, questions about tensors. Nothing is ever executed to read one.
`evaluate` and the C++ of `to_cxx` give the same values and refuse the same things: values beyond
64 bits and division by zero.
"""

from kbuild.languages.expression.cxx import arithmetic_header
from kbuild.languages.expression.errors import EvaluationError, ExpressionError
from kbuild.languages.expression.expression import (
    Expression,
    any_of,
    first_of,
    parse,
    parse_condition,
)
from kbuild.languages.expression.nodes import Query

__all__ = [
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "Query",
    "any_of",
    "arithmetic_header",
    "first_of",
    "parse",
    "parse_condition",
]

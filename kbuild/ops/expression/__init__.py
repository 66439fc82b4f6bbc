"""Integer expressions of `build.toml`: grids, sizes, predicates.

A small subset of Python over 64-bit integers: `+ - * // %`, comparisons, `and`, `or`, `not`,
`a if c else b`, a few functions, queries about tensors. Nothing is executed to read one.
`evaluate` and the C++ of `to_cxx` compute the same values and raise the same errors: overflow of
64 bits and division by zero.
"""

from kbuild.ops.expression.expression import (
    Expression,
    any_of,
    arithmetic_header,
    first_of,
    parse,
    parse_condition,
)
from kbuild.ops.expression.nodes import EvaluationError, ExpressionError, Query

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

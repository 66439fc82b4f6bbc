"""What can be wrong with an expression, when it is read and when it is evaluated."""

from __future__ import annotations


class ExpressionError(ValueError):
    """A text that is no expression; says where, and what to write instead."""

    def __init__(self, message: str, column: int, hint: str = "") -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column
        """1-based, in the expression's own text."""
        self.hint = hint


class EvaluationError(ValueError):
    """An expression has no value for these numbers; the C++ code refuses them as well."""

"""The docstrings of the models' fields, read from their sources.

Only the schema and the reference page need them, so pydantic is not asked to look them up.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import lru_cache

from pydantic import BaseModel


@lru_cache(maxsize=64)
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Field name -> docstring, those of the base models included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            found |= _own(base)
    return found


def _own(model: type[BaseModel]) -> dict[str, str]:
    """The string that follows each annotated name in a class body."""
    try:
        module = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError, SyntaxError):  # put together at run time
        return {}
    body = next(node for node in module.body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }

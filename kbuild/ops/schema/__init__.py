"""Torch's function schemas: `rmsnorm(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor`.

Parsed without Torch. Everything that kbuild accepts, Torch's own parser accepts too.
"""

from kbuild.ops.schema.model import (
    Alias,
    Default,
    Return,
    Schema,
    SchemaArgument,
    SymbolicDefault,
    Type,
)
from kbuild.ops.schema.parser import SchemaError, parse_schema

__all__ = [
    "Alias",
    "Default",
    "Return",
    "Schema",
    "SchemaArgument",
    "SchemaError",
    "SymbolicDefault",
    "Type",
    "parse_schema",
]

"""Torch's function schemas: `rmsnorm(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor`.

Read without Torch. What kbuild reads, Torch's own parser reads to the same meaning; types that only
TorchScript has (`Dict`, tuples, type variables) are refused.
"""

from kbuild.languages.schema.parser import SchemaError, parse_schema
from kbuild.languages.schema.values import Alias, Argument, Default, Return, Schema, Symbol, Type

__all__ = [
    "Alias",
    "Argument",
    "Default",
    "Return",
    "Schema",
    "SchemaError",
    "Symbol",
    "Type",
    "parse_schema",
]

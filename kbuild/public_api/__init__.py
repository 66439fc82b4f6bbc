"""The public API of a kernel's Python package, read from its syntax tree without running it."""

from kbuild.public_api.compare import ApiChange, compare_apis
from kbuild.public_api.model import (
    FunctionParameter,
    ParameterKind,
    PublicApi,
    PublicApiError,
    PublicClass,
    PublicFunction,
)
from kbuild.public_api.read import find_package, read_public_api

__all__ = [
    "ApiChange",
    "FunctionParameter",
    "ParameterKind",
    "PublicApi",
    "PublicApiError",
    "PublicClass",
    "PublicFunction",
    "compare_apis",
    "find_package",
    "read_public_api",
]

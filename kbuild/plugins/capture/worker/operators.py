"""Operators of ATen: kinds of results, and arguments that an operator writes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

ALLOCATIONS = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
}  # fmt: skip
FILLS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
    "full": None, "full_like": None, "new_full": None,
}  # fmt: skip
"""Operators that allocate and fill -> the value, None where it is an argument."""
MAKERS = {
    "arange", "empty", "empty_permuted", "empty_strided", "eye", "full", "linspace", "ones", "rand",
    "randn", "scalar_tensor", "zeros",
}  # fmt: skip
"""Operators that make a tensor from numbers."""


def schema_of(func: Any) -> Any:
    """The schema of an operator."""
    return func._schema  # noqa: SLF001 - there is no public name


def operator_of(func: Any) -> str:
    """`add_` of `aten::add_.Tensor`."""
    return str(schema_of(func).name).removeprefix("aten::")


def is_view(func: Any) -> bool:
    """True if an operator returns views of its arguments."""
    returned = schema_of(func).returns
    return bool(returned) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returned
    )


def uses_default_dtype(operator: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if an operator creates a tensor of the process's default dtype."""
    if operator not in MAKERS or kwargs.get("dtype") is not None:
        return False
    numbers = args if operator in ("arange", "scalar_tensor") else args[1:2]
    is_filled = operator in ("arange", "full", "scalar_tensor")
    return not is_filled or any(isinstance(n, (float, torch.SymFloat)) for n in numbers)


def writes(func: Any, position: int) -> bool:
    """True if an operator writes to the argument at a position."""
    arguments = schema_of(func).arguments
    info = arguments[position].alias_info if position < len(arguments) else None
    return info is not None and info.is_write


def dtype_name(dtype: Any) -> str:
    """A dtype of Torch or Triton as Torch calls it."""
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    text = str(dtype).removeprefix("torch.")
    return names.get(text, text)

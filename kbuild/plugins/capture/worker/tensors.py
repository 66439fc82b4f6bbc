"""Operators of ATen, and views of tensors without data that Torch cannot make without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.runs import NotFollowedError

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
    # The first argument of the others is the size; the number that `full` fills with is the second.
    numbers = args if operator in ("arange", "scalar_tensor") else args[1:2]
    # An integer makes `arange` and `full` int64, whatever the default dtype is.
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


def contiguous_strides(sizes: Sequence[Any]) -> list[Any]:
    """Strides of a contiguous tensor; numbers or symbols."""
    strides: list[Any] = [1] * len(sizes)
    for axis in reversed(range(len(sizes) - 1)):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    return strides


def usual_strides(sizes: Sequence[Any]) -> list[Any]:
    """Strides that Torch gives a contiguous tensor: never 0, also where a size is 0."""
    return contiguous_strides([torch.sym_max(size, 1) for size in sizes])


def alike(tensor: torch.Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    """`torch.empty_like` of a tensor with symbols as strides: an expression, not a path for each.

    The result is dense and has its strides in the same order, as Torch orders them.

    Raises:
        NotFollowedError: Torch orders more than two strides, one of which is 0, in its own way.
    """
    sizes, given = tensor.shape, tensor.stride()
    rank = len(sizes)
    if rank > 2 and any(bool(stride == 0) for stride in given):  # noqa: PLR2004
        raise NotFollowedError("`empty_like` of an expanded tensor with more than two dimensions")
    strides: list[Any] = [1] * rank
    for outer in range(rank):
        for inner in range(outer + 1, rank):
            first, second = given[outer], given[inner]
            # Not `or` and `and`, which would decide on each condition, and so fork paths.
            is_turned = (first < second) | ((first == second) & (sizes[outer] < sizes[inner]))
            if rank == 2:  # noqa: PLR2004
                is_turned = (first != 0) & (second != 0) & is_turned
            strides[outer] *= _chosen(is_turned, 1, torch.sym_max(sizes[inner], 1))
            strides[inner] *= _chosen(is_turned, torch.sym_max(sizes[outer], 1), 1)
    return torch.empty_strided(
        sizes, strides, dtype=dtype or tensor.dtype, device=device or tensor.device
    )


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    """Choose one of two integers, as an expression."""
    if isinstance(condition, bool):
        return yes if condition else no
    node = condition.node
    yes, no = (
        n if isinstance(n, torch.SymInt) else torch.SymInt(node.wrap_int(n)) for n in (yes, no)
    )
    return torch.sym_ite(condition, yes, no)


def extent_of(sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Number of elements from the first to the last one; less than 1 for an empty tensor."""
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def require_room(
    root: torch.Tensor | None, tensor: torch.Tensor, sizes: Any, strides: Any, offset: Any = None
) -> None:
    """Let a path end in an error, as Torch does, where a view reaches beyond its memory.

    `root` is all that is known of the memory.

    Raises:
        RuntimeError: it reaches beyond it.
    """
    if root is None:
        return
    end = (tensor.storage_offset() if offset is None else offset) + extent_of(sizes, strides)
    if end > extent_of(root.shape, root.stride()):
        raise RuntimeError("as_strided reaches beyond the memory of the tensor")


def require_index(tensor: torch.Tensor, axis: int, index: Any) -> None:
    """Let a path end in an error, as Torch does, where a dimension has no such element.

    Raises:
        IndexError: it has none.
    """
    size = tensor.shape[axis]
    if index >= size or index < -size:
        raise IndexError(f"dimension {axis} has no element {index}")


def indexed(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]` for integers, slices, None and `...`; tensors select elements.

    Torch's own enters the device's context, which is not there.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    dimensions = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (tensor.dim() - dimensions)
    axis, tensors = 0, {}
    for part in parts:
        if part is None:
            tensor = torch.ops.aten.unsqueeze.default(tensor, axis)
        elif isinstance(part, torch.Tensor):
            tensors[axis] = part
        elif isinstance(part, slice):
            if part != slice(None):
                step = 1 if part.step is None else part.step
                tensor = torch.ops.aten.slice.Tensor(tensor, axis, part.start, part.stop, step)
        elif isinstance(part, (int, torch.SymInt)):
            tensor = torch.ops.aten.select.int(tensor, axis, part)
            # `select` has removed the dimension, so the axis stays.
            continue
        else:
            raise CaptureError(f"indexes a tensor with a `{type(part).__name__}`")
        axis += 1
    if tensors:
        indices = [tensors.get(axis) for axis in range(max(tensors) + 1)]
        tensor = torch.ops.aten.index.Tensor(tensor, indices)
    return tensor


def assigned(tensor: torch.Tensor, index: Any, value: Any) -> None:
    """`tensor[index] = value`, for what `indexed` does without tensors."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, torch.Tensor) for part in parts):
        raise CaptureError("assigns to the elements that a tensor selects")
    place = indexed(tensor, index)
    if isinstance(value, torch.Tensor):
        torch.ops.aten.copy_.default(place, value)
    else:
        torch.ops.aten.fill_.Scalar(place, value)


def broadcast(args: Sequence[Any], text: Callable[[Any], str]) -> Sequence[Any]:
    """Arguments of an operator with the same sizes where one of them is 1 in this call alone.

    Torch takes a symbol for no 1. Whether it is one is asked only where sizes differ.
    """
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    rank = max((tensor.dim() for tensor in tensors), default=0)
    sizes: list[Any] = [1] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, rank - tensor.dim()):
            known = sizes[axis]
            # The texts come first, because comparing symbols is a decision, and so a path.
            if text(known) == "1":
                sizes[axis] = size
            elif text(size) in ("1", text(known)) or known == size:
                continue
            elif bool(size != 1):
                sizes[axis] = size if known == 1 else known
    return [
        _expanded(arg, sizes[rank - arg.dim() :]) if isinstance(arg, torch.Tensor) else arg
        for arg in args
    ]


def _expanded(tensor: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """A view of a tensor with other sizes where it is 1 by a decision of the path."""
    axes = [
        axis
        for axis, size in enumerate(tensor.shape)
        if isinstance(size, torch.SymInt) and _example(size) == 1 != _example(sizes[axis])
    ]
    if not axes:
        return tensor
    strides = [0 if axis in axes else stride for axis, stride in enumerate(tensor.stride())]
    shape = [sizes[at] if at in axes else size for at, size in enumerate(tensor.shape)]
    return torch.as_strided(tensor, shape, strides, tensor.storage_offset())


def _example(size: Any) -> int:
    """A size in the run's own example."""
    return int(size.node.hint if isinstance(size, torch.SymInt) else size)

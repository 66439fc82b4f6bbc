"""Records what a run launches and calls, in a mode of Torch's dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import triton.language as tl
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode_temporarily,
)
from torch.utils._pytree import tree_leaves

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.descriptors import DESCRIPTORS, address_of, description_of
from kbuild.capture.worker.launches import launch_step
from kbuild.capture.worker.runs import NeedsContiguous, Trace
from kbuild.capture.worker.symbols import Symbols
from kbuild.capture.worker.tensors import (
    alike,
    assigned,
    broadcast,
    contiguous_strides,
    indexed,
    require_room,
)

ALLOCATIONS = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
}  # fmt: skip
FILLS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
    "full": None, "full_like": None, "new_full": None,
}  # fmt: skip
"""Operators that allocate and fill -> the value, None where it is an argument."""
_LEAST_ADDRESS = 16
_QUESTIONS = ("sym_size", "sym_stride", "sym_numel")
_HASH = torch.SymInt.__hash__


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records launches and ATen calls of one run."""

    def __init__(self, symbols: Symbols, files: Sequence[Path]) -> None:
        super().__init__()
        self.symbols, self._files = symbols, tuple(str(file) for file in files)
        self.trace = Trace()
        self._roots: dict[tuple[int, torch.dtype], str] = {}
        self._other_dtype: dict[str, str] = {}
        """View of another dtype -> the tensor that it is of; neither written to nor returned."""
        self.keeps_strides = False
        """Whether `empty_like` follows the strides of a call, or needs a contiguous tensor."""
        self._like: dict[str, str] = {}
        """Tensor of `empty_like` -> the one whose strides it follows."""
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        """Storages must not be freed, so that none has the number of an earlier one."""

    # tensors

    def enter(self, name: str, tensor: torch.Tensor) -> None:
        """Know a tensor by a name."""
        self._roots[_storage(tensor)] = name
        self._memory[_storage(tensor)] = tensor

    def buffer(self, tensor: torch.Tensor, *, is_dense: bool = False, **more: Any) -> str:
        """Give a tensor a name that the run made; where it is known already, that name."""
        if _storage(tensor) in self._roots:
            return self._roots[_storage(tensor)]
        name = f"b{len(self.trace.buffers)}"
        self.enter(name, tensor)
        shape = self._shape(tensor)
        if not more.get("produced") and not self._is_contiguous(tensor):
            # Its strides may reach beyond its number of elements: it is a view of plain memory.
            symbols = self.symbols
            count = tensor.numel()
            room = symbols.text_of(count) if is_dense else symbols.text_of_extent(tensor)
            shape |= {"sizes": [room], "strides": ["1"]}
        self.trace.buffers.append({"name": name, "line": self.line(), **shape, **more})
        return name

    def _shape(self, tensor: torch.Tensor) -> dict[str, Any]:
        text = self.symbols.text_of
        is_contiguous = self._is_contiguous(tensor)
        strides = contiguous_strides(tensor.shape) if is_contiguous else tensor.stride()
        return {
            "sizes": [text(size) for size in tensor.shape],
            "strides": [text(stride) for stride in strides],
            "offset": text(tensor.storage_offset()),
            "dtype": str(tensor.dtype).removeprefix("torch."),
        }

    def value(self, value: Any) -> Any:
        """A value as JSON: `{"tensor": ...}`, `{"int": ...}` and so on."""
        if value is None:
            return None
        if isinstance(value, tl.constexpr):
            return self.value(value.value)
        if isinstance(value, torch.Tensor):
            if _storage(value) not in self._roots:
                raise CaptureError("uses a tensor that is not an argument", self.line())
            return {"tensor": self._roots[_storage(value)], **self._shape(value)}
        if isinstance(value, DESCRIPTORS):
            return self._descriptor(value)
        if isinstance(value, (list, tuple, torch.Size)):
            return {"list": [self.value(item) for item in value]}
        for kind, types, write in self._plain_values():
            if isinstance(value, types):
                written = write(value)
                if "address(" in written:
                    raise CaptureError("passes an address as a number", self.line())
                return {kind: written}
        raise CaptureError(f"passes a value of the type `{type(value).__name__}`", self.line())

    def _descriptor(self, descriptor: Any) -> dict[str, Any]:
        """A descriptor as JSON: a tensor, which may be a view, and what images have of it."""
        text = self.symbols.text_of
        value = self.value(descriptor.base)
        for key, numbers in (("sizes", descriptor.shape), ("strides", descriptor.strides)):
            value[key] = [text(number) for number in numbers]
        return {**value, "descriptor": description_of(descriptor, self.line())}

    def _address(self, tensor: torch.Tensor) -> Any:
        """`Tensor.data_ptr`."""
        name = self._roots.get(_storage(tensor))
        if name is None:
            raise CaptureError("asks where a tensor lies that is not an argument", self.line())
        made = {buffer["name"]: buffer for buffer in self.trace.buffers}
        while name in made and made[name].get("aliases"):
            name = made[name]["aliases"]
        given = None if name in made else self.symbols.integer(f"address({name})", _LEAST_ADDRESS)
        return address_of(tensor, given)

    def _plain_values(self) -> Iterator[tuple[str, Any, Callable[[Any], str]]]:
        """Kind -> its types and how one is written; a `bool` is an `int` as well."""
        number = self.symbols.text_of
        yield "bool", (bool, torch.SymBool), number
        yield "int", (int, torch.SymInt), number
        yield "float", (float, torch.SymFloat), number
        yield "string", str, str
        yield "dtype", (torch.dtype, tl.dtype), _dtype_name
        for kind in ("device", "memory_format", "layout"):
            yield kind, getattr(torch, kind), str

    def paused(self) -> AbstractContextManager[Any]:
        """Operators in this context are not recorded; none is while `__torch_dispatch__` runs."""
        is_active = _get_current_dispatch_mode() is self
        paused: AbstractContextManager[Any] = (
            _pop_mode_temporarily() if is_active else nullcontext()
        )
        return paused

    # layouts

    def is_free(self, tensor: Any) -> bool:
        """Whether a tensor has the strides of a call, which are symbols."""
        if not isinstance(tensor, torch.Tensor):
            return False
        return any("stride(" in self.symbols.text_of(stride) for stride in tensor.stride())

    def require_contiguous(self, tensor: torch.Tensor) -> None:
        """Begin anew with the tensor's root contiguous, if it is not.

        Raises:
            NeedsContiguous: it is not.
        """
        if self.is_free(tensor):
            root = self._roots[_storage(tensor)]
            raise NeedsContiguous(self._like.get(root, root))

    def contiguous(
        self, tensor: torch.Tensor, memory_format: Any = torch.contiguous_format
    ) -> torch.Tensor:
        """`Tensor.contiguous`: one step, which copies where a call needs it, not two paths."""
        if memory_format is not torch.contiguous_format:
            raise CaptureError(f"asks for the layout `{memory_format}`", self.line())
        if self._is_contiguous(tensor):
            return tensor
        strides = contiguous_strides(tensor.shape)
        argument = self.value(tensor)
        with self.paused():
            copy = torch.empty_strided(
                tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
            )
        name = self.buffer(copy, produced=True, aliases=argument["tensor"])
        self.trace.steps.append({
            "aten": "contiguous", "arguments": [argument], "results": [name], "written": [],
            "line": self.line(),
        })  # fmt: skip
        return copy

    def _is_contiguous(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is contiguous in every call; Torch writes `max(N, 1)` for a stride."""
        text = self.symbols.text_of
        expected = contiguous_strides(tensor.shape)
        sizes = contiguous_strides([torch.sym_max(size, 1) for size in tensor.shape])
        strides = [text(stride) for stride in tensor.stride()]
        return strides in ([text(e) for e in expected], [text(s) for s in sizes])

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Methods of `torch.Tensor` that would ask for strides on more paths than they have."""
        view, reshape, flatten = torch.Tensor.view, torch.Tensor.reshape, torch.Tensor.flatten
        is_contiguous = torch.Tensor.is_contiguous

        def viewed(tensor: torch.Tensor, *shape: Any, **more: Any) -> Any:
            self.require_contiguous(tensor)
            return view(tensor, *shape, **more)

        def reshaped(tensor: torch.Tensor, *shape: Any, **more: Any) -> Any:
            tensor = self.contiguous(tensor) if self.is_free(tensor) else tensor
            return reshape(tensor, *shape, **more)

        def flattened(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            tensor = self.contiguous(tensor) if self.is_free(tensor) else tensor
            return flatten(tensor, *args, **more)

        def asked(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            self.require_contiguous(tensor)
            return is_contiguous(tensor, *args, **more)

        def copied(tensor: torch.Tensor, memory_format: Any = torch.contiguous_format) -> Any:
            return self.contiguous(tensor, memory_format)

        def addressed(tensor: torch.Tensor) -> Any:
            return self._address(tensor)

        return {
            "view": viewed, "reshape": reshaped, "flatten": flattened, "is_contiguous": asked,
            "contiguous": copied, "__getitem__": indexed, "__setitem__": assigned,
            "data_ptr": addressed,
        }  # fmt: skip

    # places

    def modules(self) -> Iterator[Any]:
        """The author's modules that have been imported."""
        for module in list(sys.modules.values()):
            if (getattr(module, "__file__", None) or "").startswith(self._files):
                yield module

    def hashed(self, number: torch.SymInt, frame: FrameType) -> int:
        """The hash of a symbol where the author asks for it, as `size in {64, 128}` does.

        It decides on the value: every value is a path.
        """
        is_author = self.is_author(frame.f_code.co_filename)
        return hash(int(number)) if is_author else int(_HASH(number))

    def is_author(self, file: str) -> bool:
        """Whether a file of code is one of the author's."""
        return file.startswith(self._files)

    def line(self) -> str:
        """`FILE:LINE` of the author's line that is running."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
        while frame is not None:
            if self.is_author(frame.f_code.co_filename):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    # ATen

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        operator = _operator(func)
        if operator == "equal" and args[0].dim() != args[1].dim():
            return False  # whatever is in them
        if operator == "as_strided":
            require_room(self._memory.get(_storage(args[0])), *args)
        follows = self._follows_strides(operator, args, kwargs)
        args = args if follows else self._prepared(func, args)
        try:
            result = alike(*args[:1], **kwargs) if follows else func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise CaptureError(f"asks what is in a tensor (`{func}`)", self.line()) from None
        if operator in ALLOCATIONS:
            self.buffer(result, is_dense=follows)
        elif operator in FILLS:
            fill = FILLS[operator]
            if fill is None:
                fill = kwargs.get("fill_value", args[-1])
            self.buffer(result, is_dense=follows, fill=self.value(fill))
        elif not operator.startswith("prim::") and operator not in _QUESTIONS:
            tensors = [t for t in tree_leaves(result) if isinstance(t, FakeTensor)]
            if not self._is_known(func, tensors):
                self._call(func, args, kwargs, tensors)
        if follows:
            root = self._roots[_storage(args[0])]
            self._like[self._roots[_storage(result)]] = self._like.get(root, root)
        return result

    def _follows_strides(
        self, operator: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """Whether an operator allocates a tensor with strides in the order of those of another."""
        is_known = self.keeps_strides and operator in {*ALLOCATIONS, *FILLS}
        is_known = is_known and operator.endswith("_like") and self.is_free(args[0])
        return is_known and kwargs.get("memory_format") in (None, torch.preserve_format)

    def _prepared(self, func: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of an operator, contiguous and of the same sizes where that matters."""
        operator = _operator(func)
        if operator.endswith("_like") or operator in ("clone", "view", "_unsafe_view"):
            self.require_contiguous(args[0])
            return args
        written = [_writes(func, at) for at in range(len(args))]
        if not _is_view(func) and not operator.startswith(("prim::", "sym_", "empty", "new_")):
            args = [
                self.contiguous(a) if self.is_free(a) and not is_written else a
                for a, is_written in zip(args, written, strict=True)
            ]
        if torch.Tag.pointwise not in func.tags or any(written):
            return args
        return broadcast(args, self.symbols.text_of)

    def _is_known(self, func: Any, tensors: Sequence[Any]) -> bool:
        """Whether sizes, strides and the offset say all of what an operator returns."""
        known = all(_storage(tensor) in self._roots for tensor in tensors)
        if tensors and _operator(func) in ("detach", "alias", "lift_fresh"):
            if not known:
                raise CaptureError("makes a tensor from data of Python", self.line())
            return True
        return bool(tensors) and known and _is_view(func)

    def _call(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
    ) -> None:
        schema = _schema(func)
        values = [
            args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
            for at, argument in enumerate(schema.arguments)
        ]
        arguments = [self.value(value) for value in values]
        written = [
            self.value(value)["tensor"]
            for at, value in enumerate(values)
            if _writes(func, at) and isinstance(value, torch.Tensor)
        ]
        self._judge_written(written)
        if any(_writes(func, at) and isinstance(v, (list, tuple)) for at, v in enumerate(values)):
            raise CaptureError(f"writes to a list of tensors with `{func}`", self.line())
        new = [tensor for tensor in tensors if _storage(tensor) not in self._roots]
        if new and len(new) != len(tensors):
            raise CaptureError(f"gets an argument and a new tensor from `{func}`", self.line())
        if _is_view(func):
            root = arguments[0]["tensor"]
            results = [self.buffer(tensor, produced=True, aliases=root) for tensor in new]
            self._other_dtype |= dict.fromkeys(results, root)
        else:
            results = [self.buffer(tensor, produced=True) for tensor in new]
        overload = f".{schema.overload_name}" if schema.overload_name else ""
        self.trace.steps.append({
            "aten": _operator(func) + overload,
            "arguments": arguments,
            "results": results,
            "written": written,
            "line": self.line(),
        })  # fmt: skip

    def _judge_written(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._other_dtype:
                raise CaptureError("writes through a view of another dtype", self.line())

    def returned(self, value: Any) -> Any:
        """As `value`, of what the function returns.

        Raises:
            CaptureError: an op cannot return it.
        """
        described = self.value(value)
        if described and described.get("tensor") in self._other_dtype:
            raise CaptureError("returns a view of another dtype", self.line())
        return described

    def launch(
        self, kernel: Any, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """One `kernel[grid](*args, **kwargs)`."""
        step = launch_step(kernel, grid, args, kwargs, self.symbols, self.value, self.line())
        arguments = (step["arguments"].get(name) for name in step["written"])
        self._judge_written([value["tensor"] for value in arguments if value and "tensor" in value])
        self.trace.steps.append(step)


def _storage(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    """What tells memory apart; a view of another dtype is a tensor of its own."""
    return int(tensor.untyped_storage()._cdata), tensor.dtype  # noqa: SLF001


def _schema(func: Any) -> Any:
    return func._schema  # noqa: SLF001 - there is no public name


def _operator(func: Any) -> str:
    """`add_` of `aten::add_.Tensor`."""
    return str(_schema(func).name).removeprefix("aten::")


def _is_view(func: Any) -> bool:
    returned = _schema(func).returns
    return bool(returned) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returned
    )


def _writes(func: Any, position: int) -> bool:
    arguments = _schema(func).arguments
    info = arguments[position].alias_info if position < len(arguments) else None
    return info is not None and info.is_write


def _dtype_name(dtype: Any) -> str:
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
    text = str(dtype).removeprefix("torch.")
    return names.get(text, text)

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

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.descriptors import DESCRIPTORS, address_of, description_of
from kbuild.plugins.capture.worker.differentiation import SameValues
from kbuild.plugins.capture.worker.launches import launch_step
from kbuild.plugins.capture.worker.runs import NeedsContiguous, Trace
from kbuild.plugins.capture.worker.settings import Settings
from kbuild.plugins.capture.worker.symbols import Symbols
from kbuild.plugins.capture.worker.tensors import (
    ALLOCATIONS,
    FILLS,
    alike,
    assigned,
    broadcast,
    contiguous_strides,
    dtype_name,
    indexed,
    is_view,
    operator_of,
    require_index,
    require_room,
    schema_of,
    uses_default_dtype,
    usual_strides,
    writes,
)

_LEAST_ADDRESS = 16
_QUESTIONS = ("sym_size", "sym_stride", "sym_numel")
_HASH = torch.SymInt.__hash__


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records launches and ATen calls of one run."""

    def __init__(self, symbols: Symbols, files: Sequence[Path], place: str = "") -> None:
        super().__init__()
        self._place = place
        """The author's line where none is running, such as in Torch's own backward passes."""
        self.symbols, self._files = symbols, tuple(str(file) for file in files)
        self.trace = Trace()
        self.settings: Settings
        """Answers the questions about the process that the author's code asks."""
        self._roots: dict[tuple[int, torch.dtype], str] = {}
        self._other_dtype: dict[str, str] = {}
        """View of another dtype -> its tensor; such a view is neither written to nor returned."""
        self.keeps_strides = False
        """True if `empty_like` follows the strides of a call; else it needs a contiguous tensor."""
        self._like: dict[str, str] = {}
        """Tensor of `empty_like` -> the one whose strides it follows."""
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        """Tensors by memory, kept alive: a freed storage's number would be used for another one."""

    # tensors

    def enter(self, name: str, tensor: torch.Tensor) -> None:
        """Register a tensor under a name."""
        self._roots[_storage(tensor)] = name
        self._memory[_storage(tensor)] = tensor

    def argument_of(self, tensor: torch.Tensor) -> str:
        """The name of an argument, if a tensor is one; empty for views of it."""
        name = self._roots.get(_storage(tensor), "")
        is_one = self._memory.get(_storage(tensor)) is tensor
        is_made = any(buffer["name"] == name for buffer in self.trace.buffers)
        return name if is_one and not is_made and not name.startswith("grad_") else ""

    def is_allocated(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is memory that the run allocated, not the result of an operator."""
        name = self._roots.get(_storage(tensor), "")
        buffers = {buffer["name"]: buffer for buffer in self.trace.buffers}
        return name in buffers and not buffers[name].get("produced")

    def buffer(self, tensor: torch.Tensor, *, is_dense: bool = False, **more: Any) -> str:
        """Register a tensor that the run made; return its name, the known one if there is one."""
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
                return {kind: self._without_address(write(value), value)}
        raise CaptureError(f"passes a value of the type `{type(value).__name__}`", self.line())

    def _without_address(self, written: str, value: Any) -> str:
        """The text of a value, which may not depend on an address: images have none."""
        if "address(" in written and isinstance(value, torch.SymBool):
            return repr(bool(value))
        if "address(" in written:
            raise CaptureError("passes an address as a number: pass the tensor", self.line())
        return written

    def _descriptor(self, descriptor: Any) -> dict[str, Any]:
        """Describe a descriptor as JSON: its tensor, and the properties that matter to images."""
        text = self.symbols.text_of
        value = self.value(descriptor.base)
        for key, numbers in (("sizes", descriptor.shape), ("strides", descriptor.strides)):
            value[key] = [text(number) for number in numbers]
        return {**value, "descriptor": description_of(descriptor, self.line())}

    def _address(self, tensor: torch.Tensor) -> Any:
        """Replace `Tensor.data_ptr`."""
        name = self._roots.get(_storage(tensor))
        if name is None:
            raise CaptureError("asks where a tensor lies that is not an argument", self.line())
        buffers = {buffer["name"]: buffer for buffer in self.trace.buffers}
        while name in buffers and buffers[name].get("aliases"):
            name = buffers[name]["aliases"]
        given = (
            None if name in buffers else self.symbols.integer(f"address({name})", _LEAST_ADDRESS)
        )
        return address_of(tensor, given)

    def _plain_values(self) -> Iterator[tuple[str, Any, Callable[[Any], str]]]:
        """Kinds of plain values with their types and how to write one; `bool` before `int`."""
        number = self.symbols.text_of
        yield "bool", (bool, torch.SymBool), number
        yield "int", (int, torch.SymInt), number
        yield "float", (float, torch.SymFloat), number
        yield "string", str, str
        yield "dtype", (torch.dtype, tl.dtype), dtype_name
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
        """True if a tensor's strides are symbols, whose values each call decides."""
        if not isinstance(tensor, torch.Tensor):
            return False
        return any("stride(" in self.symbols.text_of(stride) for stride in tensor.stride())

    def require_contiguous(self, tensor: torch.Tensor) -> None:
        """Restart the run with the tensor's root contiguous, if it is not.

        Raises:
            NeedsContiguous: it is not.
        """
        if self.is_free(tensor):
            root = self._roots[_storage(tensor)]
            raise NeedsContiguous(self._like.get(root, root))

    def contiguous(
        self, tensor: torch.Tensor, memory_format: Any = torch.contiguous_format
    ) -> torch.Tensor:
        """Replace `Tensor.contiguous` by one step that copies where needed, not by two paths."""
        if memory_format is not torch.contiguous_format:
            raise CaptureError(f"asks for the layout `{memory_format}`", self.line())
        if self._is_contiguous(tensor):
            return tensor
        argument, copy = self.value(tensor), self._new(tensor)
        name = self.buffer(copy, produced=True, aliases=argument["tensor"])
        self._add_copy("contiguous", [argument], name)
        return copy

    def cloned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy in memory of its own."""
        argument, copy = self.value(tensor), self._new(tensor)
        name = self.buffer(copy, produced=True)
        self._add_copy("clone", [argument, {"string": "contiguous_format"}], name)
        return copy

    def _new(self, tensor: torch.Tensor) -> torch.Tensor:
        """Contiguous memory for the values of a tensor, whose gradient is that of the tensor."""
        strides = usual_strides(tensor.shape)
        with self.paused():
            copy = torch.empty_strided(
                tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
            )
            if torch.is_grad_enabled() and tensor.requires_grad:
                copy = SameValues.apply(tensor, [copy])
        return copy

    def _add_copy(self, operator: str, arguments: list[Any], name: str) -> None:
        self.trace.steps.append({
            "aten": operator, "arguments": arguments, "results": [name], "written": [],
            "line": self.line(),
        })  # fmt: skip

    def _is_contiguous(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is contiguous in every call; Torch may write a stride as `max(N, 1)`."""
        text = self.symbols.text_of
        expected = contiguous_strides(tensor.shape)
        usual = usual_strides(tensor.shape)
        strides = [text(stride) for stride in tensor.stride()]
        return strides in ([text(e) for e in expected], [text(s) for s in usual])

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Replacements of tensor methods that would decide on strides, and so fork paths."""
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
            if str(getattr(module, "__dict__", {}).get("__file__")).startswith(self._files):
                yield module

    def hashed(self, number: torch.SymInt, frame: FrameType) -> int:
        """The hash of a symbol where the author asks for it, as `size in {64, 128}` does.

        It decides on the value: every value is a path.
        """
        is_author = self.is_author(frame.f_code.co_filename)
        return hash(int(number)) if is_author else int(_HASH(number))

    def is_author(self, file: str) -> bool:
        """True if a file of code is one of the author's."""
        for folder in self._files:
            if file.startswith(f"{folder}/"):
                return "/site-packages/" not in file[len(folder) :]
        return False

    def line(self) -> str:
        """`FILE:LINE` of the author's line that is running."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller
        while frame is not None:
            if self.is_author(frame.f_code.co_filename):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return self._place

    # ATen

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        operator = operator_of(func)
        if operator == "equal" and args[0].dim() != args[1].dim():
            return False  # whatever is in them
        self._validate(operator, args, kwargs)
        follows = self._follows_strides(operator, args, kwargs)
        args = args if follows else self._prepared(func, args)
        result = self._computed(func, args, kwargs, follows=follows)
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

    def _validate(self, operator: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuse operators that settings of the process change, and views beyond the memory."""
        self.settings.require_no_autocast(operator)
        if uses_default_dtype(operator, args, kwargs):
            kwargs["dtype"] = self.settings.require_default_dtype()
        if operator == "as_strided":
            require_room(self._memory.get(_storage(args[0])), *args)
        elif operator == "select":
            require_index(*args)

    def _computed(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, follows: bool
    ) -> Any:
        try:
            result = alike(*args[:1], **kwargs) if follows else func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise self._data_error(func) from None
        if self.symbols.env.pending_fresh_unbacked_symbols:
            raise self._data_error(func)
        return result

    def _follows_strides(
        self, operator: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        """True if an operator allocates a tensor whose strides follow those of its argument."""
        is_known = self.keeps_strides and operator in {*ALLOCATIONS, *FILLS}
        is_known = is_known and operator.endswith("_like") and self.is_free(args[0])
        return is_known and kwargs.get("memory_format") in (None, torch.preserve_format)

    def _data_error(self, func: Any) -> CaptureError:
        message = f"asks what is in a tensor (`{func}`), which no launch can wait for"
        remedy = "compute it in a kernel, or take the number as an argument"
        return CaptureError(f"{message}: {remedy}", self.line())

    def _prepared(self, func: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of an operator, made contiguous and of equal sizes where it needs that."""
        operator = operator_of(func)
        if operator.endswith("_like") or operator in ("clone", "view", "_unsafe_view"):
            self.require_contiguous(args[0])
            return args
        written = [writes(func, at) for at in range(len(args))]
        if not is_view(func) and not operator.startswith(("prim::", "sym_", "empty", "new_")):
            args = [
                self.contiguous(a) if self.is_free(a) and not is_written else a
                for a, is_written in zip(args, written, strict=True)
            ]
        if torch.Tag.pointwise not in func.tags or any(written):
            return args
        return broadcast(args, self.symbols.text_of)

    def _is_known(self, func: Any, tensors: Sequence[Any]) -> bool:
        """True if an operator's result is a view fully described by sizes, strides and offset."""
        known = all(_storage(tensor) in self._roots for tensor in tensors)
        if tensors and operator_of(func) in ("detach", "alias", "lift_fresh"):
            if not known:
                raise CaptureError("makes a tensor from data of Python", self.line())
            return True
        return bool(tensors) and known and is_view(func)

    def _call(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
    ) -> None:
        schema = schema_of(func)
        if "::" in operator_of(func):
            message = f"calls the op `{schema.name}`: call the function that implements it"
            raise CaptureError(message, self.line())
        values = [
            args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
            for at, argument in enumerate(schema.arguments)
        ]
        arguments = [self.value(value) for value in values]
        written = [
            self.value(value)["tensor"]
            for at, value in enumerate(values)
            if writes(func, at) and isinstance(value, torch.Tensor)
        ]
        self._judge_written(written)
        if any(writes(func, at) and isinstance(v, (list, tuple)) for at, v in enumerate(values)):
            raise CaptureError(f"writes to a list of tensors with `{func}`", self.line())
        new = [tensor for tensor in tensors if _storage(tensor) not in self._roots]
        if new and len(new) != len(tensors):
            raise CaptureError(f"gets an argument and a new tensor from `{func}`", self.line())
        if is_view(func):
            root = arguments[0]["tensor"]
            results = [self.buffer(tensor, produced=True, aliases=root) for tensor in new]
            self._other_dtype |= dict.fromkeys(results, root)
        else:
            results = [self.buffer(tensor, produced=True) for tensor in new]
        overload = f".{schema.overload_name}" if schema.overload_name else ""
        self.trace.steps.append({
            "aten": operator_of(func) + overload,
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
        """Describe a value that the function returns, as `value` does.

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
        """Record one `kernel[grid](*args, **kwargs)`."""
        step = launch_step(kernel, grid, args, kwargs, self.symbols, self.value, self.line())
        arguments = (step["arguments"].get(name) for name in step["written"])
        self._judge_written([value["tensor"] for value in arguments if value and "tensor" in value])
        self.trace.steps.append(step)


def _storage(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    """Identity of a tensor's memory; a view of another dtype counts as a tensor of its own."""
    return int(tensor.untyped_storage()._cdata), tensor.dtype  # noqa: SLF001

"""Records what a run launches and calls, in a mode of Torch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
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

from kbuild.plugins.capture.programs import CaptureError, written_roots
from kbuild.plugins.capture.worker.differentiation import SameValues
from kbuild.plugins.capture.worker.launches import launch_step
from kbuild.plugins.capture.worker.recorded_values import RecordedValues, storage_of
from kbuild.plugins.capture.worker.runs import NeedsContiguous
from kbuild.plugins.capture.worker.settings import partial_method
from kbuild.plugins.capture.worker.symbols import Symbols
from kbuild.plugins.capture.worker.tensors import (
    ALLOCATIONS,
    FILLS,
    alike,
    assigned,
    broadcast,
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

_QUESTIONS = ("sym_size", "sym_stride", "sym_numel")


class Recorder(RecordedValues, TorchDispatchMode):  # type: ignore[misc]
    """Records launches and ATen calls of one run."""

    def __init__(self, symbols: Symbols, files: Sequence[Path], place: str = "") -> None:
        RecordedValues.__init__(self, symbols, files, place)
        TorchDispatchMode.__init__(self)
        self.keeps_strides = False
        """True if `empty_like` follows the strides of a call; else it needs a contiguous tensor."""
        self._like: dict[str, str] = {}
        """Tensor of `empty_like` -> the one whose strides it follows."""

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
            root = self._roots[storage_of(tensor)]
            raise NeedsContiguous(self._like.get(root, root))

    def contiguous(
        self, tensor: torch.Tensor, memory_format: Any = torch.contiguous_format
    ) -> torch.Tensor:
        """Replace `Tensor.contiguous` by one step that copies where needed, not by two paths."""
        if memory_format is not torch.contiguous_format:
            raise CaptureError(f"asks for the layout `{memory_format}`", self.line())
        if self.is_contiguous(tensor):
            return tensor
        return self._copied(tensor, "contiguous", aliases=self.value(tensor)["tensor"])

    def cloned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy in memory of its own."""
        return self._copied(tensor, "clone", {"string": "contiguous_format"})

    def _copied(
        self, tensor: torch.Tensor, operator: str, *others: Any, **more: Any
    ) -> torch.Tensor:
        """A contiguous copy by a step of its own; its gradient is that of the tensor."""
        argument, strides = self.value(tensor), usual_strides(tensor.shape)
        with self.paused():
            copy = torch.empty_strided(
                tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
            )
            if torch.is_grad_enabled() and tensor.requires_grad:
                copy = SameValues.apply(tensor, [copy])
        self.trace.steps.append({
            "aten": operator, "arguments": [argument, *others],
            "results": [self.buffer(copy, produced=True, **more)], "written": [],
            "line": self.line(),
        })  # fmt: skip
        return copy

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Replacements of tensor methods that would decide on strides, and so fork paths."""

        def required(original: Callable[..., Any]) -> Callable[..., Any]:
            def method(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
                self.require_contiguous(tensor)
                return original(tensor, *args, **more)

            return method

        def copied(original: Callable[..., Any]) -> Callable[..., Any]:
            # `NumberRecorder.is_free` knows this function by its name.
            def reshaped(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
                tensor = self.contiguous(tensor) if self.is_free(tensor) else tensor
                return original(tensor, *args, **more)

            return reshaped

        kind = torch.Tensor
        return {
            "view": required(kind.view), "is_contiguous": required(kind.is_contiguous),
            "reshape": copied(kind.reshape), "flatten": copied(kind.flatten),
            "contiguous": partial_method(self.contiguous),
            "data_ptr": partial_method(self.address),
            "__getitem__": indexed, "__setitem__": assigned,
        }  # fmt: skip

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
        elif operator == "promote_types":
            return result  # of dtypes, which a path has
        elif not operator.startswith("prim::") and operator not in _QUESTIONS:
            tensors = [t for t in tree_leaves(result) if isinstance(t, FakeTensor)]
            if not self._is_known(func, tensors):
                self._call(func, args, kwargs, tensors)
        if follows:
            root = self._roots[storage_of(args[0])]
            self._like[self._roots[storage_of(result)]] = self._like.get(root, root)
        return result

    def _validate(self, operator: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuse operators that settings of the process change, and views beyond the memory."""
        self.settings.require_no_autocast(operator)
        if uses_default_dtype(operator, args, kwargs):
            kwargs["dtype"] = self.settings.require_default_dtype()
        if operator == "as_strided":
            require_room(self._memory.get(storage_of(args[0])), *args)
        elif operator == "select":
            require_index(*args)

    def _computed(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, follows: bool
    ) -> Any:
        try:
            result = alike(*args[:1], **kwargs) if follows else func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise self._data_error(func) from None
        # A new symbol is a number that only the tensor's data tells, such as a number of nonzeros.
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
            # A tensor that is written to must stay itself: a copy would take the result away.
            args = [
                self.contiguous(a) if self.is_free(a) and not is_written else a
                for a, is_written in zip(args, written, strict=True)
            ]
        if torch.Tag.pointwise not in func.tags or any(written):
            return args
        return broadcast(args, self.symbols.text_of)

    def _is_known(self, func: Any, tensors: Sequence[Any]) -> bool:
        """True if an operator's result is a view fully described by sizes, strides and offset."""
        known = all(storage_of(tensor) in self._roots for tensor in tensors)
        # `torch.tensor(...)` ends in `lift_fresh`, of memory that no recorded step has filled.
        if tensors and operator_of(func) in ("detach", "alias", "lift_fresh"):
            if not known:
                raise CaptureError("makes a tensor from data of Python", self.line())
            return True
        return bool(tensors) and known and is_view(func)

    def _call(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
    ) -> None:
        schema = schema_of(func)
        # `operator_of` removes the namespace of ATen alone.
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
        self._require_same_dtype(written)
        if any(writes(func, at) and isinstance(v, (list, tuple)) for at, v in enumerate(values)):
            raise CaptureError(f"writes to a list of tensors with `{func}`", self.line())
        new = [tensor for tensor in tensors if storage_of(tensor) not in self._roots]
        if new and len(new) != len(tensors):
            raise CaptureError(f"gets an argument and a new tensor from `{func}`", self.line())
        if is_view(func):
            root = arguments[0]["tensor"]
            results = [self.buffer(tensor, produced=True, aliases=root) for tensor in new]
            # Views of the same dtype share the root's entry, see `storage_of`: a new one has
            # another dtype.
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

    def _require_same_dtype(self, written: Iterable[str]) -> None:
        if not self._other_dtype.keys().isdisjoint(written):
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
        self._require_same_dtype(written_roots(step))
        self.trace.steps.append(step)

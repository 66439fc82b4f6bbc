"""The tensors, descriptors and values of one run as JSON, and the lines of the author's code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import triton.language as tl

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.runs import Trace
from kbuild.plugins.capture.worker.settings import Settings
from kbuild.plugins.capture.worker.symbols import Symbols
from kbuild.plugins.capture.worker.tensors import (
    contiguous_strides,
    dtype_name,
    usual_strides,
)

_LEAST_ADDRESS = 16
_CLASSES = (
    ("triton.tools.tensor_descriptor", "TensorDescriptor"),
    ("triton.experimental.gluon.nvidia.hopper", "TensorDescriptor"),
)
_ALIGNMENT = 512
"""Alignment in bytes of the memory that allocators of GPUs return."""
_ITEMS = ("swizzle_byte_width", "transposed", "fp4_padded")
"""Attributes of a layout in shared memory that do not follow from the block and the dtype."""
# Taken before runs put `hashed` in its place, which calls it.
_HASH = torch.SymInt.__hash__


def _classes() -> Iterator[Any]:
    """Descriptor classes that the installed release of Triton has."""
    for module, name in _CLASSES:
        try:
            yield getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue


DESCRIPTORS = tuple(_classes())


def _description(descriptor: Any, line: str) -> dict[str, Any]:
    """Properties that an image is compiled for: block, padding, and Gluon's layout of the block."""
    if getattr(descriptor, "round_f32_to_tf32", False):
        raise CaptureError("passes a descriptor that rounds to TF32", line)
    described: dict[str, Any] = {"block": list(descriptor.block_shape)}
    if descriptor.padding != "zero":
        described["padding"] = descriptor.padding
    if layout := _layout(descriptor, line):
        described["layout"] = layout
    return described


def _layout(descriptor: Any, line: str) -> dict[str, Any]:
    """Layout of a Gluon descriptor; empty if it is the default of its block."""
    layout = getattr(descriptor, "layout", None)
    if layout is None:
        return {}
    if getattr(layout, "cga_layout", None):
        raise CaptureError("passes a descriptor whose block is divided among a cluster", line)
    language = importlib.import_module("triton.language")
    dtype = language.dtype(f"int{layout.element_bitwidth}")
    block = list(descriptor.block_shape)
    own = {name: getattr(layout, name) for name in _ITEMS}
    more = {name: True for name in _ITEMS[1:] if own[name]}
    if layout == type(layout).get_default_for(block, dtype, **more):
        return more
    return {"swizzle_byte_width": own["swizzle_byte_width"], **more}


class RecordedValues:
    """Names the tensors of a run, and writes values as JSON."""

    def __init__(self, symbols: Symbols, files: Sequence[Path], place: str = "") -> None:
        self._place = place
        """The author's line where none is running, such as in Torch's own backward passes."""
        self.symbols, self._files = symbols, tuple(str(file) for file in files)
        self.trace = Trace()
        self.settings: Settings
        """Answers the questions about the process that the author's code asks."""
        self._roots: dict[tuple[int, torch.dtype], str] = {}
        self._other_dtype: dict[str, str] = {}
        """View of another dtype -> its tensor; such a view is neither written to nor returned."""
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        """Tensors by memory, kept alive: a freed storage's number would be used for another one."""

    def enter(self, name: str, tensor: torch.Tensor) -> None:
        """Register a tensor under a name."""
        self._roots[storage_of(tensor)] = name
        self._memory[storage_of(tensor)] = tensor

    def argument_of(self, tensor: torch.Tensor) -> str:
        """The name of an argument, if a tensor is one; empty for views of it."""
        name = self._roots.get(storage_of(tensor), "")
        is_one = self._memory.get(storage_of(tensor)) is tensor
        is_own = is_one and name not in self._buffers and not name.startswith("grad_")
        return name if is_own else ""

    def is_allocated(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is memory that the run allocated, not the result of an operator."""
        name = self._roots.get(storage_of(tensor), "")
        return name in self._buffers and not self._buffers[name].get("produced")

    @property
    def _buffers(self) -> dict[str, dict[str, Any]]:
        return {buffer["name"]: buffer for buffer in self.trace.buffers}

    def buffer(self, tensor: torch.Tensor, *, is_dense: bool = False, **more: Any) -> str:
        """Register a tensor that the run made; return its name, the known one if there is one."""
        if storage_of(tensor) in self._roots:
            return self._roots[storage_of(tensor)]
        name = f"b{len(self.trace.buffers)}"
        self.enter(name, tensor)
        shape = self._shape(tensor)
        if not more.get("produced") and not self.is_contiguous(tensor):
            # Its strides may reach beyond its number of elements: it is a view of plain memory.
            symbols = self.symbols
            count = tensor.numel()
            room = symbols.text_of(count) if is_dense else symbols.text_of_extent(tensor)
            shape |= {"sizes": [room], "strides": ["1"]}
        self.trace.buffers.append({"name": name, "line": self.line(), **shape, **more})
        return name

    def _shape(self, tensor: torch.Tensor) -> dict[str, Any]:
        text = self.symbols.text_of
        is_contiguous = self.is_contiguous(tensor)
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
            if storage_of(value) not in self._roots:
                raise CaptureError("uses a tensor that is not an argument", self.line())
            return {"tensor": self._roots[storage_of(value)], **self._shape(value)}
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
        if "address(" not in written:
            return written
        if isinstance(value, torch.SymBool):
            return repr(bool(value))
        raise CaptureError("passes an address as a number: pass the tensor", self.line())

    def _descriptor(self, descriptor: Any) -> dict[str, Any]:
        """Describe a descriptor as JSON: its tensor, and the properties that matter to images."""
        text = self.symbols.text_of
        value = self.value(descriptor.base)
        for key, numbers in (("sizes", descriptor.shape), ("strides", descriptor.strides)):
            value[key] = [text(number) for number in numbers]
        return {**value, "descriptor": _description(descriptor, self.line())}

    def address(self, tensor: torch.Tensor) -> Any:
        """Replace `Tensor.data_ptr`."""
        name = self._roots.get(storage_of(tensor))
        if name is None:
            raise CaptureError("asks where a tensor lies that is not an argument", self.line())
        buffers = self._buffers
        while name in buffers and buffers[name].get("aliases"):
            name = buffers[name]["aliases"]
        offset = tensor.storage_offset() * tensor.element_size()
        if name in buffers:  # the function allocates it
            return offset + _ALIGNMENT
        return offset + self.symbols.integer(f"address({name})", _LEAST_ADDRESS)

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

    def is_contiguous(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is contiguous in every call; Torch may write a stride as `max(N, 1)`."""
        text = self.symbols.text_of
        expected = contiguous_strides(tensor.shape)
        usual = usual_strides(tensor.shape)
        strides = [text(stride) for stride in tensor.stride()]
        return strides in ([text(e) for e in expected], [text(s) for s in usual])

    @property
    def modules(self) -> Sequence[Any]:
        """The author's modules that have been imported."""
        return _modules_below(self._files, len(sys.modules))

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
                # A virtual environment may lie in the author's folder.
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


@cache
def _modules_below(folders: tuple[str, ...], _: int) -> Sequence[Any]:
    """Modules of files in the folders; searched again when another number of them is imported."""
    return [
        module
        for module in list(sys.modules.values())
        if str(getattr(module, "__dict__", {}).get("__file__")).startswith(folders)
    ]


def storage_of(tensor: torch.Tensor) -> tuple[int, torch.dtype]:
    """Identity of a tensor's memory; a view of another dtype counts as a tensor of its own."""
    return int(tensor.untyped_storage()._cdata), tensor.dtype  # noqa: SLF001

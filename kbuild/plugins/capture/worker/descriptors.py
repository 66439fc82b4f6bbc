"""Tensor descriptors of a run, of Triton and of Gluon, and the addresses of what they describe."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError

_CLASSES = (
    ("triton.tools.tensor_descriptor", "TensorDescriptor"),
    ("triton.experimental.gluon.nvidia.hopper", "TensorDescriptor"),
)
_ALIGNMENT = 512
"""Alignment in bytes of the memory that allocators of GPUs return."""
_ITEMS = ("swizzle_byte_width", "transposed", "fp4_padded")
"""Attributes of a layout in shared memory that do not follow from the block and the dtype."""


def _classes() -> Iterator[Any]:
    """Descriptor classes that the installed release of Triton has."""
    for module, name in _CLASSES:
        try:
            yield getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue


DESCRIPTORS = tuple(_classes())


def description_of(descriptor: Any, line: str) -> dict[str, Any]:
    """Properties that an image is compiled for: block, padding, and Gluon's layout of the block.

    Args:
        descriptor: as the author makes it.
        line: the author's.

    Raises:
        CaptureError: no launcher can make such a descriptor.
    """
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


def address_of(tensor: torch.Tensor, given: Any) -> Any:
    """`Tensor.data_ptr`.

    Args:
        tensor: of the run.
        given: the address of the argument that it shares memory with; None for memory that the
            function allocates.
    """
    offset = tensor.storage_offset() * tensor.element_size()
    return offset + (_ALIGNMENT if given is None else given)

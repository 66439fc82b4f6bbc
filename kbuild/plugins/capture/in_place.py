"""A forward pass that writes to an argument, as one that returns the new values.

Torch differentiates no op that writes to an argument. The op writes to a copy, and Python copies
the result back, which Torch differentiates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.steps import with_names, written_roots
from kbuild.plugins.capture.values import factors


def written_arguments(traces: Sequence[Mapping[str, Any]], arguments: Collection[str]) -> list[str]:
    """Arguments that the forward pass of a run writes to."""
    written: set[str] = set()
    for trace in traces:
        end = trace["boundary"].get("steps", len(trace["steps"]))
        written |= {root for step in trace["steps"][:end] for root in written_roots(step)}
    return [name for name in arguments if name in written]


def with_copy(
    trace: Mapping[str, Any], name: str, sizes: Sequence[str], place: str
) -> dict[str, Any]:
    """A run that writes to a copy of an argument, contiguous like the argument.

    Args:
        trace: of the worker.
        name: of the argument.
        sizes: of it.
        place: the author's line.
    """
    if trace["raises"]:
        return dict(trace)
    copy = f"in_place_{name}"
    strides = [" * ".join(f"({size})" for size in sizes[at + 1 :]) for at in range(len(sizes))]
    shape = {"sizes": [*sizes], "strides": [text or "1" for text in strides], "offset": "0"}
    known = next(
        value for value in _tensors([trace["steps"], trace["outputs"]]) if value["tensor"] == name
    )
    shape["dtype"] = known["dtype"]
    names = {name: copy}
    step = {
        "aten": "clone",
        "arguments": [{"tensor": name, **shape}, {"string": "contiguous_format"}],
        "results": [copy],
        "written": [],
        "line": place,
    }
    boundary = {**trace["boundary"]}
    for key in ("steps", "buffers"):
        boundary[key] = boundary.get(key, len(trace[key])) + 1
    renamed = {
        key: with_names(trace[key], names) for key in ("outputs", "saved", "gradients", "buffers")
    }
    return {
        **trace,
        **renamed,
        "boundary": boundary,
        "steps": [step, *with_names(trace["steps"], names)],
        "buffers": [{"name": copy, "line": place, "produced": True, **shape}, *renamed["buffers"]],
    }


def place_of(trace: Mapping[str, Any], name: str, place: str) -> int:
    """The output that is an argument which the function has written to.

    Raises:
        CaptureError: none is.
    """
    copy = f"in_place_{name}"
    (buffer,) = (buffer for buffer in trace["buffers"] if buffer["name"] == copy)
    for at, value in enumerate(trace["outputs"]):
        is_own = value is not None and value["tensor"] == copy and value["offset"] == "0"
        if is_own and factors(value["sizes"]) == factors(buffer["sizes"]):
            return at
    raise CaptureError(f"writes to `{name}` and does not return it", place)


def _tensors(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        own = [value] if "tensor" in value else []
        return [*own, *(tensor for item in value.values() for tensor in _tensors(item))]
    return [t for item in value for t in _tensors(item)] if isinstance(value, list) else []

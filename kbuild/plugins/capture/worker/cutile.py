"""Launches of cuTile kernels while a function is captured."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.number_functions import cdiv
from kbuild.plugins.capture.worker.recorder import Recorder
from kbuild.plugins.capture.worker.stores import (
    PlainFunction,
    PlainParameter,
    unused_parameters,
)


class CurrentStream:
    """`torch.cuda.current_stream()`: launches take it, and nothing may depend on it."""

    @property
    def cuda_stream(self) -> CurrentStream:
        """The handle."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise CaptureError(f"asks for `{name}` of the current stream: only launches may use it")


def cutile_functions(recorder: Recorder) -> Iterator[tuple[Any, Any]]:
    """Functions of cuTile and their replacements, if the author's modules import cuTile."""
    if tile := sys.modules.get("cuda.tile"):
        # Its module imports cuTile, which other languages do without.
        kernel_type = importlib.import_module("kbuild.dsl.worker.cutile").CutileKernel
        yield tile.launch, partial(_launch, recorder, kernel_type)
        yield tile.cdiv, partial(cdiv, tile.cdiv)


def _launch(  # noqa: PLR0917
    recorder: Recorder,
    kernel_type: Any,
    stream: Any,
    grid: Sequence[Any],
    kernel: Any,
    args: Sequence[Any],
) -> None:
    """Record one `ct.launch(stream, grid, kernel, args)`; `kernel_type` is `CutileKernel`."""
    place = recorder.line()
    if not isinstance(stream, CurrentStream):
        message = "launches on a stream of its own: pass `torch.cuda.current_stream()`"
        raise CaptureError(message, place)
    name, original = _named_kernel(kernel, place)
    known = kernel_type(name, kernel)
    parameters = tuple(
        PlainParameter(d["name"], d["constant"], known.parameters[d["name"]].default)
        for d in known.describe()["parameters"]
    )
    function, values = PlainFunction(kernel._pyfunc, parameters, name), []  # noqa: SLF001
    for parameter, value in zip(parameters, args, strict=False):
        if isinstance(value, (list, tuple)) and not parameter.is_constexpr:
            message = f"passes a {type(value).__name__} as `{parameter.name}` of `{name}`"
            raise CaptureError(f"{message}: pass each item as an argument", place)
        # The code is the same for all values of a constant that it does not name.
        is_unused = parameter.is_constexpr and parameter.name in unused_parameters(function)
        values.append(0 if is_unused else value)
    recorder.launch(function, grid, values, _hints(kernel, original, place))


def _named_kernel(kernel: Any, place: str) -> tuple[str, Any]:
    """The kernel of a module with its name; for a copy by `replace_hints`, the original.

    Raises:
        CaptureError: the module has no such name, so that no build finds the kernel.
    """
    function = kernel._pyfunc  # noqa: SLF001 - there is no public name
    names = {n: k for n, k in function.__globals__.items() if isinstance(k, type(kernel))}
    alike = [(n, k) for n, k in names.items() if k._pyfunc is function]  # noqa: SLF001
    if not alike:
        message = f"launches `{function.__name__}`, which has no name in its module"
        raise CaptureError(f"{message}: define it there, not inside of a function", place)
    return next((pair for pair in alike if pair[1] is kernel), alike[0])


def _hints(kernel: Any, original: Any, place: str) -> dict[str, int]:
    """The hints that `replace_hints` has changed.

    Raises:
        CaptureError: one is not a number.
    """
    hints, before = (dataclasses.asdict(k._compiler_options) for k in (kernel, original))  # noqa: SLF001
    changed = {name: value for name, value in hints.items() if value != before[name]}
    for name, value in changed.items():
        if not isinstance(value, int):
            raise CaptureError(f"sets the hint `{name}` to `{value}`, not to a number", place)
    return changed

"""The launch of a Triton kernel, as a step of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.candidates import (
    LaunchValues,
    OwnCandidates,
    key_of,
    symbolic_extremes,
)
from kbuild.plugins.capture.worker.stores import (
    shape_parameters,
    specialized_parameters,
    written_parameters,
)
from kbuild.plugins.capture.worker.symbols import Symbols


def launch_step(  # noqa: PLR0917
    kernel: Any,
    grid: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    symbols: Symbols,
    described: Callable[[Any], Any],
    place: str,
) -> dict[str, Any]:
    """Record one `kernel[grid](*args, **kwargs)`.

    Args:
        kernel: a kernel function, and what is wrapped around it.
        grid: blocks, or a function that gives them.
        args: by position.
        kwargs: by name; launch options as well.
        symbols: of the run.
        described: writes a value as JSON.
        place: the author's line.

    Raises:
        CaptureError: the path depends on a candidate.
    """
    launched, chain = kernel, []
    while not isinstance(kernel, JITFunction):
        chain.append(kernel)
        kernel = kernel.fn
    parameters = {parameter.name: parameter for parameter in kernel.params}
    values = LaunchValues(dict(zip(parameters, args, strict=False)) | dict(kwargs))
    candidates = OwnCandidates(symbols, values, place)
    with symbolic_extremes():
        candidates.add(chain, args)
        for name, parameter in parameters.items():
            if name not in values and parameter.has_default:
                values[name] = parameter.default
        blocks = grid(values) if callable(grid) else grid
    blocks = blocks if isinstance(blocks, (tuple, list)) else (blocks,)
    step: dict[str, Any] = {
        "launch": _name_of(launched, kernel, place),
        "file": kernel.fn.__code__.co_filename,
        "arguments": {},
        "constants": {},
        "options": {},
        "autotune": sorted(candidates.names),
        "candidate": {n: v for n, v in values.items() if n in candidates.names and type(v) is int},
        "key": key_of(chain),
        "written": sorted(written_parameters(kernel)),
        "specialized": sorted(specialized_parameters(kernel)),
        "shapes": sorted(shape_parameters(kernel)),
        "grid": [symbols.text_of(block) for block in blocks],
        "line": place,
    }
    for name, value in values.items():
        if name not in candidates.names:
            _add_value(step, name, value, parameters.get(name), described)
    candidates.end(kernel.__name__)
    return step


def _add_value(
    step: dict[str, Any], name: str, value: Any, parameter: Any, described: Callable[[Any], Any]
) -> None:
    """Add a value to the options, constants or arguments; options have no parameter."""
    if parameter is None:
        # An image has one value of each: every value is a path.
        decided = int(value) if isinstance(value, torch.SymInt) else value
        step["options"][name] = described(decided)
    else:
        step["constants" if parameter.is_constexpr else "arguments"][name] = described(value)


def _name_of(launched: Any, kernel: Any, place: str) -> str:
    """Name of the kernel, with its decorators, in its module.

    Raises:
        CaptureError: the module has no such name, so that no build finds the kernel.
    """
    for name, value in kernel.fn.__globals__.items():
        if value is launched:
            return str(name)
    known = kernel.fn.__globals__.get(kernel.__name__)
    while known is not kernel:
        if not hasattr(known, "fn"):
            message = f"launches `{kernel.__name__}`, which has no name in its module"
            raise CaptureError(f"{message}: define it there, not inside of a function", place)
        known = known.fn
    return str(kernel.__name__)

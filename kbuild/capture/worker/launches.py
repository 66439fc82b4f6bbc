"""One launch of a Triton kernel, as a step of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kbuild.capture.programs import CaptureError
from kbuild.capture.worker.stores import written_parameters
from kbuild.capture.worker.symbols import Symbols


def launch_step(  # noqa: PLR0917
    kernel: Any,
    grid: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    symbols: Symbols,
    described: Callable[[Any], Any],
) -> dict[str, Any]:
    """One `kernel[grid](*args, **kwargs)`.

    Args:
        kernel: a kernel function, and what is wrapped around it.
        grid: blocks, or a function that gives them.
        args: by position.
        kwargs: by name; launch options as well.
        symbols: of the run.
        described: writes a value as JSON.
    """
    chain = []
    while not isinstance(kernel, JITFunction):
        chain.append(kernel)
        kernel = kernel.fn
    parameters = {parameter.name: parameter for parameter in kernel.params}
    values = dict(zip(parameters, args, strict=False)) | dict(kwargs)
    constants = _decorated(chain, args, values, symbols)
    for name, parameter in parameters.items():
        if name not in values and parameter.has_default:
            values[name] = parameter.default
    blocks = grid(values) if callable(grid) else grid
    blocks = blocks if isinstance(blocks, (tuple, list)) else (blocks,)
    step: dict[str, Any] = {
        "launch": kernel.__name__,
        "file": kernel.fn.__code__.co_filename,
        "arguments": {},
        "constants": {},
        "options": {},
        "autotune": sorted(constants),
        "written": sorted(written_parameters(kernel)),
        "grid": [symbols.text_of(block) for block in blocks],
    }
    for name, value in values.items():
        if name in constants:
            continue
        if name not in parameters:
            # An image has one value of each: every value is a path.
            decided = int(value) if isinstance(value, torch.SymInt) else value
            step["options"][name] = described(decided)
        elif parameters[name].is_constexpr:
            step["constants"][name] = described(value)
        else:
            step["arguments"][name] = described(value)
    return step


def _decorated(
    chain: Sequence[Any], args: Sequence[Any], values: dict[str, Any], symbols: Symbols
) -> set[str]:
    """Add what the kernel's decorators decide to the values; names that candidates decide."""
    names: set[str] = set()
    for decorator in chain:
        if isinstance(decorator, Autotuner):
            names |= _candidates(decorator, values, symbols)
        elif isinstance(decorator, Heuristics):
            for name, function in decorator.values.items():
                values[name] = function(
                    {**dict(zip(decorator.arg_names, args, strict=False)), **values}
                )
    return names


def _candidates(tuner: Any, values: dict[str, Any], symbols: Symbols) -> set[str]:
    """Constants of the author's own candidates, each a symbol of its name."""
    settings = [config.all_kwargs() for config in tuner.configs]
    options = {"num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override"}
    names = dict.fromkeys(name for setting in settings for name in setting if name not in options)
    for name in names:
        choices = [setting.get(name) for setting in settings]
        if all(type(choice) is int for choice in choices):
            if name in symbols.named and name not in symbols.tuned:
                raise CaptureError(f"tunes the constant `{name}`: name the dimension otherwise")
            symbols.tuned.add(name)
            symbols.hints = {**symbols.hints, name: choices[0]}
            values[name] = symbols.integer(name, min(choices), max(choices))
        else:
            values[name] = choices[0]
    return set(names)

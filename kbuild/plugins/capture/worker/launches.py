"""The launch of a kernel as a step of a run, with the author's own candidates."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any
from unittest import mock

import torch
from triton.runtime.autotuner import Autotuner, Heuristics

from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.stores import (
    PlainFunction,
    shape_parameters,
    specialized_parameters,
    written_parameters,
)
from kbuild.plugins.capture.worker.symbols import Symbols

_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override"}
"""Keys of a candidate that are launch options, not constants of the kernel."""
_WITHOUT_EFFECT = (("debug", False), ("num_ctas", 1))
"""Launch options of Triton that have no effect with these values."""


class LaunchValues(dict[str, Any]):
    """Arguments of a launch by name, for the author's grid and heuristics."""

    def __init__(
        self, values: Mapping[str, Any], varied: Mapping[str, tuple[str, str]] | None = None
    ) -> None:
        super().__init__(values)
        self.varied = dict(varied or {})
        """Name that candidates set and that is no symbol -> the kernel, and the place of its
        launch."""

    def __getitem__(self, name: str) -> Any:
        self._require_known(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Like `dict.get`."""
        self._require_known(name)
        return super().get(name, default)

    def _require_known(self, name: str) -> None:
        if name in self.varied:
            kernel, place = self.varied[name]
            message = f"computes with `{name}`, which candidates of `{kernel}` set"
            raise CaptureError(message, place)


class OwnCandidates:
    """Values that the decorators of one launch add to its arguments."""

    def __init__(self, symbols: Symbols, values: LaunchValues, place: str) -> None:
        self._symbols, self._values, self._place = symbols, values, place
        self._guards = len(symbols.env.guards)
        self.names: set[str] = set()
        """Constants that candidates set."""

    def add(self, chain: Sequence[Any], args: Sequence[Any]) -> None:
        """Add the values that a kernel's decorators set, the outermost decorator first.

        Raises:
            CaptureError: a constant of candidates has the name of a size.
        """
        values = self._values
        for decorator in chain:
            if isinstance(decorator, Autotuner):
                self._add_candidates(decorator)
            elif isinstance(decorator, Heuristics):
                given = dict(zip(decorator.arg_names, args, strict=False))
                for name, function in decorator.values.items():
                    values[name] = function(LaunchValues({**given, **values}, values.varied))

    def _add_candidates(self, tuner: Any) -> None:
        """Turn the integers of candidates into symbols with their names."""
        settings, kernel = [c.all_kwargs() for c in tuner.configs], tuner.base_fn.__name__
        for name in dict.fromkeys(name for setting in settings for name in setting):
            choices = [setting.get(name) for setting in settings]
            if name in _OPTIONS:
                self._values.varied[name] = (kernel, self._place)
                continue
            if name in self._symbols.named:
                message = f"has the size `{name}`, and a constant of that name in `{kernel}`"
                raise CaptureError(f"{message}: call the size something else", self._place)
            self.names.add(name)
            self._values[name] = choices[0]
            # By type: a boolean is an `int` too, and no number to compute with.
            if all(type(choice) is int for choice in choices):
                self._symbols.hints = {**self._symbols.hints, name: choices[0]}
                self._values[name] = self._symbols.integer(name, min(choices), max(choices))
            elif any(choice != choices[0] for choice in choices):
                self._values.varied[name] = (kernel, self._place)

    def end(self, kernel: str) -> None:
        """Remove the constants after their launch.

        Raises:
            CaptureError: the function took a path because of one.
        """
        named, hints = self._symbols.named, self._symbols.hints
        symbols = {named.pop(name).node.expr for name in self.names if name in named}
        self._symbols.hints = {name: hints[name] for name in hints if name not in self.names}
        for guard in self._symbols.env.guards[self._guards :]:
            if guard.expr.free_symbols & symbols:
                text = self._symbols.text(guard.expr)
                message = f"decides on a candidate of `{kernel}`: `{text}`"
                raise CaptureError(message, self._place)


@contextmanager
def symbolic_extremes() -> Iterator[None]:
    """Replace `min` and `max` of symbols by expressions, so that they do not fork paths."""
    with (
        mock.patch.object(builtins, "min", partial(_extreme, min, torch.sym_min)),
        mock.patch.object(builtins, "max", partial(_extreme, max, torch.sym_max)),
    ):
        yield


def _extreme(plain: Any, symbolic: Any, *values: Any, **options: Any) -> Any:
    if len(values) == 1:
        values = tuple(values[0])
    if options or not any(isinstance(value, torch.SymInt) for value in values):
        return plain(values, **options)
    return reduce(symbolic, values)


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

    `described` writes a value as JSON.

    Raises:
        CaptureError: the path depends on a candidate.
    """
    launched, chain = kernel, []
    while isinstance(kernel, (Autotuner, Heuristics)):
        chain.append(kernel)
        kernel = kernel.fn
    parameters = {parameter.name: parameter for parameter in kernel.params}
    values = LaunchValues(dict(zip(parameters, args, strict=False)) | dict(kwargs))
    candidates = OwnCandidates(symbols, values, place)
    with symbolic_extremes():
        candidates.add(chain, args)
        # After the candidates, which may set a parameter that has a default.
        for name, parameter in parameters.items():
            if name not in values and parameter.has_default:
                values[name] = parameter.default
        blocks = grid(values) if callable(grid) else grid
    blocks = blocks if isinstance(blocks, (tuple, list)) else (blocks,)
    tuners = [decorator for decorator in chain if isinstance(decorator, Autotuner)]
    step: dict[str, Any] = {
        "launch": _name_of(launched, kernel, place),
        "file": kernel.fn.__code__.co_filename,
        "arguments": {},
        "constants": {},
        "options": {},
        "autotune": sorted(candidates.names),
        "candidate": {n: v for n, v in values.items() if n in candidates.names and type(v) is int},
        # The parameters whose values choose among candidates.
        "key": [name for tuner in tuners for name in tuner.keys] if tuners else None,
        "written": sorted(written_parameters(kernel)),
        "specialized": sorted(specialized_parameters(kernel)),
        "shapes": sorted(shape_parameters(kernel)),
        # Kernels of cuTile get the sizes and the strides of a tensor with it.
        "arrays": isinstance(kernel, PlainFunction),
        "grid": [symbols.text_of(block) for block in blocks],
        "line": place,
    }
    given = {name: value for name, value in values.items() if name not in candidates.names}
    for name, value in given.items():
        if name in parameters:
            kind = "constants" if parameters[name].is_constexpr else "arguments"
            step[kind][name] = described(value)
    options = {name: value for name, value in given.items() if name not in parameters}
    without_effect = () if step["arrays"] else _WITHOUT_EFFECT
    step["options"] = {
        n: described(v) for n, v in _decided(options) if (n, v) not in without_effect
    }
    candidates.end(kernel.__name__)
    return step


def _decided(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Launch options with their values: an image has one of each, so every value is a path."""
    for name, value in options.items():
        yield name, int(value) if isinstance(value, torch.SymInt) else value


def _name_of(launched: Any, kernel: Any, place: str) -> str:
    """Name of the kernel, with its decorators, in its module.

    Raises:
        CaptureError: the module has no such name, so that no build finds the kernel.
    """
    if isinstance(kernel, PlainFunction):
        return kernel.name
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

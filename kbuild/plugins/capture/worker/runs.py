"""Inputs and results of one run of a wrapper, and the structure of its return value."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kbuild.plugins.capture.programs import CaptureError

LARGEST_ARGUMENT = 2**31 - 1


@dataclass
class RunDevice:
    """The GPU of a run, as far as it is known."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts from `device_facts` if modules ask for them at import; `hip` for a GPU of AMD."""
    asked: bool = False
    """True if the author's code asked something that GPUs of AMD answer differently."""

    @property
    def is_amd(self) -> bool:
        """True for a GPU of AMD."""
        return bool(self.facts.get("hip"))

    @property
    def capability(self) -> int:
        """90 for 9.0; 0 where it is not known."""
        major, minor = self.facts.get("capability", (0, 0))
        return int(major * 10 + minor)

    def require_nvidia(self) -> None:
        """Note a question that GPUs of AMD answer otherwise.

        Raises:
            CaptureError: it is one of these.
        """
        self.asked = True
        if self.is_amd:
            message = "asks a GPU of AMD for what NVIDIA's have, such as the compute capability"
            raise CaptureError(f"{message}: ask first whether `torch.version.hip` is None")


class NeedsContiguous(BaseException):
    """The wrapper does with a tensor what only a contiguous one allows; the argument names it."""


class NotFollowedError(Exception):
    """The path does something that no op can do: the op refuses its calls."""


class NeedsGradients(Exception):  # noqa: N818 - no error: the walk begins anew
    """Torch differentiates what the wrapper returns."""


@dataclass
class TensorArgument:
    """A tensor argument of a run."""

    name: str
    sizes: Sequence[str]
    """Expressions of its sizes: names of dimensions, or numbers."""
    dtype: str
    contiguous: bool = False


@dataclass
class Bounds:
    """The smallest and the largest value of a size."""

    least: int = 0
    most: int = LARGEST_ARGUMENT


@dataclass
class Trace:
    """The record of one run."""

    guards: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    hints: dict[str, int | float] = field(default_factory=dict)
    """The example under which the run took its path."""
    buffers: list[dict[str, Any]] = field(default_factory=list)
    """Tensors that the run allocated or ATen produced."""
    outputs: list[Any] = field(default_factory=list)
    raises: str = ""
    """The author's own error, which ends this path."""
    place: str = ""
    decisions: dict[str, bool] = field(default_factory=dict)
    """Questions other than sizes that the run asked, such as `needs_input_grad`."""
    boundary: dict[str, int] = field(default_factory=dict)
    """Guards, steps and buffers of the forward pass, where a backward pass follows."""
    saved: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    without_gradient: list[int] = field(default_factory=list)
    """Places of the outputs that are not differentiable."""
    structure: str = ""
    """Python expression that the function returns: `({0}, None)` is the first output and None.
    """
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Named tuples of the structure -> their fields."""


@dataclass
class WrapperCall:
    """The inputs of a run."""

    function: Any
    """A function, or a class derived from `torch.autograd.Function`."""
    arguments: Sequence[tuple[str, Any]]
    """The author's parameters in order, each with a `TensorArgument` or with a value; a number that
    stays a symbol is the text `int` or `float` in a list of one."""
    bounds: MutableMapping[str, Bounds]
    """Bounds of the numbers, narrowed by earlier runs."""
    files: Sequence[Path]
    """Folders of the author's sources."""
    backward: bool = True
    place: str = ""
    """The author's line with the function."""
    contiguous: set[str] = field(default_factory=set)
    """Tensors that are contiguous in every call: others are refused."""
    device: RunDevice = field(default_factory=RunDevice)
    keeps_strides: bool = False
    """See `Recorder.keeps_strides`."""
    differentiated: bool = False
    """True if Torch differentiates the function, which is then no `autograd.Function`."""


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """The parameters of a function without `*args` and `**kwargs`, which no call of an op fills."""
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


_PLAIN = (bool, int, float, str)


@dataclass
class Structure:
    """The tensors of a value."""

    place: str
    """The author's line."""
    leaves: list[Any] = field(default_factory=list)
    """Tensors and None."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Named tuples -> their fields."""

    def template(self, value: Any) -> str:
        """The value as Python, with placeholders for leaves and named tuples; adds both.

        Raises:
            CaptureError: an op and Python around it cannot return it.
        """
        if value is None or isinstance(value, torch.Tensor):
            self.leaves.append(value)
            return f"{{{len(self.leaves) - 1}}}"
        # Not `isinstance`: the `repr` of a subclass, such as an enum, need not be an expression.
        if type(value) in _PLAIN:
            is_odd = isinstance(value, float) and not math.isfinite(value)
            text = f"float({str(value)!r})" if is_odd else repr(value)
            # The template is formatted with the leaves, so other braces are doubled.
            return text.replace("{", "{{").replace("}", "}}")
        if type(value) is list:
            return f"[{', '.join(map(self.template, value))}]"
        if type(value) is dict and all(type(key) in _PLAIN for key in value):
            items = (f"{self.template(k)}: {self.template(v)}" for k, v in value.items())
            return f"{{{{{', '.join(items)}}}}}"
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return self._tuple(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)):
            message = "returns a number of the call, such as a size: compute it outside of the"
            raise CaptureError(f"{message} function", self.place)
        message = f"returns a `{type(value).__name__}`: return tensors, alone or in tuples, lists,"
        raise CaptureError(f"{message} dictionaries or named tuples", self.place)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        kind, items = type(value), ", ".join(map(self.template, value))
        if kind is tuple:
            return f"({items}{',' * (len(value) == 1)})"
        if kind.__module__ == "torch.return_types":
            return f"_torch.return_types.{kind.__name__}(({items},))"
        fields = [*getattr(kind, "_fields", ())]
        if not fields or kind.__bases__ != (tuple,) or _own_names(vars(kind), fields):
            message = f"returns a `{kind.__name__}`, which is more than a named tuple"
            raise CaptureError(f"{message}: return a tuple", self.place)
        if self.classes.setdefault(kind.__name__, fields) != fields:
            message = f"returns two named tuples of the name `{kind.__name__}`"
            raise CaptureError(f"{message}: give each a name of its own", self.place)
        return f"{{{kind.__name__}}}({items})"


def _own_names(names: Mapping[str, Any], fields: list[str]) -> list[str]:
    """Methods and properties that an author gave to a named tuple."""
    return [name for name in names if not name.startswith("_") and name not in fields]

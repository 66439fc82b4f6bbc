"""What a source in CuTe DSL says of its `@cute.jit` functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

_STREAM = "CUstream"
_CONSTANT = "Constexpr"


class Function:
    """A function that launches kernels."""

    def __init__(self, name: str, jit: Any) -> None:
        self.name, self.jit = name, jit
        self.parameters = list(inspect.signature(jit).parameters.values())
        for one in self.parameters:
            if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                raise RefusalError(f"`{name}` takes `*{one.name}`; an op's arguments have names")

    def describe(self) -> dict[str, Any]:
        """The function as JSON, without its stream."""
        return {
            "name": self.name,
            "parameters": [
                {
                    "name": one.name,
                    "constant": is_constant(one),
                    "default": one.default is not one.empty,
                }
                for one in self.parameters
                if not is_stream(one)
            ],
            "candidates": [],
            "key": [],
            "computed": [],
            "notes": [],
        }


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, Function]:
    """The functions that a module has a name for, by that name."""
    return {
        name: Function(name, value)
        for name, value in vars(module).items()
        if _is_jit(value) and owns(getattr(value, "__module__", ""))
    }


def is_constant(parameter: inspect.Parameter) -> bool:
    """Whether it is annotated with `cutlass.Constexpr`."""
    return _CONSTANT in _annotation(parameter)


def is_stream(parameter: inspect.Parameter) -> bool:
    """Whether it is the stream: annotated as one, or called so without an annotation."""
    annotation = _annotation(parameter)
    return _STREAM in annotation or (parameter.name == "stream" and not annotation)


def annotated(parameter: inspect.Parameter, word: str) -> bool:
    """Whether a word is in its annotation."""
    return word in _annotation(parameter)


def _is_jit(value: Any) -> bool:
    # Releases before 4.8 do not say which of the two decorators it was.
    wrapped = getattr(value, "__wrapped__", None)
    kind = getattr(value, "_decorator_kind", None)
    if kind is not None:
        return wrapped is not None and kind == "jit"
    executor = getattr(value, "_dsl_object", getattr(value, "_dsl_cls", None))
    return wrapped is not None and executor is not None


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else f"{annotation!r}"

"""What a source in CuTe DSL says of its `@cute.jit` functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

_STREAM = "CUstream"
_CONSTANT = "Constexpr"
_CALL = "__call__"
_SELF = "self"
"""Before the name of a constructor's parameter that the call has one of, too."""


class Function:
    """A function that launches kernels, or a class whose objects are called so."""

    def __init__(self, name: str, jit: Any, owner: type | None = None) -> None:
        """Read the signatures.

        Args:
            name: of the function or class.
            jit: what is decorated with `@cute.jit`.
            owner: the class that it is a method of.
        """
        self.name, self.jit, self._owner = name, jit, owner
        self.parameters = _named(name, jit)[owner is not None :]
        taken = {one.name for one in self.parameters}
        made = _named(name, owner.__init__)[1:] if _has_constructor(owner) else []  # type: ignore[misc]
        self.made_with = {
            f"{_SELF}.{one.name}" if one.name in taken else one.name: one for one in made
        }
        """The parameters of the class's constructor, by what `build.toml` calls them."""

    def author(self, constants: Mapping[str, Any]) -> Any:
        """What is called: the function, or a method of an object that is made of constants."""
        if self._owner is None:
            return self.jit
        given = {
            one.name: constants[name] for name, one in self.made_with.items() if name in constants
        }
        return getattr(self._owner(**given), self.jit.__name__)

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
            ]
            + [
                {"name": name, "constant": True, "default": one.default is not one.empty}
                for name, one in self.made_with.items()
            ],
            "candidates": [],
            "key": [],
            "computed": [],
            "notes": [],
        }


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, Function]:
    """The functions that a module has a name for, by that name."""
    found: dict[str, Function] = {}
    for name, value in vars(module).items():
        if not owns(getattr(value, "__module__", "")):
            continue
        if _is_jit(value):
            found[name] = Function(name, value)
        elif isinstance(value, type):
            jit = next((vars(c)[_CALL] for c in value.__mro__ if _CALL in vars(c)), None)
            if _is_jit(jit):
                found[name] = Function(name, jit, value)
    return found


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


def _named(name: str, function: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    for one in found:
        if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise RefusalError(f"`{name}` takes `*{one.name}`; an op's arguments have names")
    return found


def _has_constructor(owner: type | None) -> bool:
    return owner is not None and inspect.isfunction(owner.__init__)  # type: ignore[misc]


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

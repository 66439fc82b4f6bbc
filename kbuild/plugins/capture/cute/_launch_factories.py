"""Functions of an author's that make classes, functions and objects while a program runs.

No name leads to what they return, so a call of `cute.compile` describes it by the call that made
it. The recorder and the package watch the same functions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class FactoryCall(NamedTuple):
    """A call of a factory, and what it returned."""

    value: Any
    function: str
    """Name of the function, such as `my.ops:Mod.make_class`."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Factories:
    """Remembers what some functions return."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names` are such as `my.ops:make_*` or `my.ops:Mod.make_class`."""
        self._names = names
        self._calls: dict[int, FactoryCall] = {}

    @property
    def modules(self) -> set[str]:
        """The author's modules that have such functions."""
        return {name.partition(":")[0] for name in self._names}

    def watch(self, module: str, namespace: dict[str, Any]) -> None:
        """Replace the functions in a module, which is called `module` by the author."""
        names = [name.partition(":")[2] for name in self._names if name.startswith(f"{module}:")]
        for path, owner, value in list(_routines(namespace)) if names else ():
            if not any(fnmatchcase(path, name) for name in names):
                continue
            watched = self._watched(f"{module}:{path}", value)
            if owner is None:
                namespace[path] = watched
            else:
                setattr(owner, value.__name__, watched)

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = self._calls

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            # A function that returns a value again does not make it.
            if id(value) not in calls and hasattr(value, "__dict__"):
                calls[id(value)] = FactoryCall(value, name, args, kwargs)
            return value

        return call

    def call_of(self, value: Any) -> FactoryCall | None:
        """The call that returned a value; None for other values."""
        return self._calls.get(id(value))

    def owner_of(self, value: type) -> tuple[type, str] | None:
        """The class from a factory that has another one as an attribute, and its name there."""
        for call in self._calls.values():
            for name, each in vars(call.value).items() if isinstance(call.value, type) else ():
                if each is value:
                    return call.value, name
        return None


def _routines(namespace: Mapping[str, Any]) -> Iterator[tuple[str, type | None, Any]]:
    """Functions that a module defines: path, the class that has it, and the function."""
    for name, value in namespace.items():
        if getattr(value, "__module__", None) != namespace["__name__"]:
            continue
        if isinstance(value, type):
            for own, each in vars(value).items():
                if inspect.isfunction(each):
                    yield f"{name}.{own}", value, each
        elif inspect.isroutine(value):
            yield name, None, value

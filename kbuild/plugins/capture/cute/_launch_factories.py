"""Functions of an author's that make classes, functions and objects while a program runs.

No name leads to what they return, so a call of `cute.compile` describes it by the call that made
it. The recorder and the package watch the same functions.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple


class FactoryCall(NamedTuple):
    """A call of a factory."""

    function: str
    """Name of the function, such as `my.ops:Mod.make_class`."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Factories:
    """Remembers which calls of some functions made what is still there."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names` are such as `my.ops:make_*` or `my.ops:Mod.make_class`."""
        self._names = names
        self._calls: dict[int, FactoryCall] = {}
        self._classes: weakref.WeakSet[type] = weakref.WeakSet()

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
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            # A function that returns a value again does not make it.
            if id(value) not in self._calls:
                self._remember(value, FactoryCall(name, args, kwargs))
            return value

        return call

    def _remember(self, value: Any, call: FactoryCall) -> None:
        try:
            # A factory may make an object for every call of a kernel.
            weakref.finalize(value, self._calls.pop, id(value)).atexit = False
        except TypeError:  # numbers and texts, which are described by themselves
            return
        self._calls[id(value)] = call
        if isinstance(value, type):
            self._classes.add(value)

    def call_of(self, value: Any) -> FactoryCall | None:
        """The call that returned a value; None for other values."""
        return self._calls.get(id(value))

    def owner_of(self, value: type) -> tuple[type, str] | None:
        """The class from a factory that has another one as an attribute, and its name there."""
        for owner in self._classes:
            for name, each in vars(owner).items():
                if each is value:
                    return owner, name
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

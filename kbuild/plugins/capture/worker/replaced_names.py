"""Finds the names of functions in all modules, and replaces names while a wrapper runs.

A capture makes hundreds of runs in a process with thousands of modules, so both must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_ABSENT = object()
"""In place of the value of a name that an object does not have itself."""


@contextmanager
def replaced_names(
    replacements: Iterable[tuple[Any, str, Any]], added: Container[str] = ()
) -> Iterator[None]:
    """Set names in this context: each an object, its name, and the value.

    `mock.patch` does the same in ten times the time. Only the names in `added` may be absent: a
    name that another release of a library lacks would be replaced in vain.
    """
    originals = []
    try:
        for owner, name, value in replacements:
            if name not in added and not hasattr(owner, name):
                raise AttributeError(f"{owner!r} has no `{name}` to replace")
            originals.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, original in reversed(originals):
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


@dataclass
class _Search:
    """The last search of all modules for functions that runs replace."""

    state: Sequence[tuple[int, int]] = ()
    """`id` of each module, and the number of its names."""
    results: dict[int, tuple[Any, int, bool]] = field(default_factory=dict)
    """`id` of a module -> the module, its number, and True if it has one of the functions."""
    matches: Sequence[Any] = ()
    """The modules that have one."""


_search = _Search()


def libraries_with(functions: Mapping[int, Any], own: Iterable[Any]) -> Sequence[Any]:
    """The modules, but for the author's `own`, that have a name for one of the functions.

    A module is searched again only when it has got names: few runs import one.
    """
    modules = [*sys.modules.values()]
    state = [(id(module), len(getattr(module, "__dict__", ()))) for module in modules]
    if state != _search.state:
        for module, (identity, size) in zip(modules, state, strict=True):
            if _search.results.get(identity, (module, -1))[1] != size:
                has_one = any(names_of(functions, [module]))
                # With the module, so that no other one gets its `id`.
                _search.results[identity] = module, size, has_one
        _search.state = state
        _search.matches = [module for module in modules if _search.results[id(module)][2]]
    authors = {id(module) for module in own}
    return [module for module in _search.matches if id(module) not in authors]


def names_of(
    functions: Mapping[int, Any], modules: Iterable[Any]
) -> Iterator[tuple[Any, str, Any]]:
    """The names that modules have for functions, each with what stands in its place.

    Args:
        functions: `id` of a function -> its replacement.
        modules: the modules that are searched.
    """
    for module in modules:
        names: dict[str, Any] = getattr(module, "__dict__", {})
        matches = [
            (name, id(value)) for name, value in list(names.items()) if id(value) in functions
        ]
        yield from ((module, name, functions[original]) for name, original in matches)

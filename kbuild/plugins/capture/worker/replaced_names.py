"""Finds the names of functions in all modules, and replaces names while a wrapper runs.

A capture makes hundreds of runs in a process with thousands of modules, so both must be quick.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_ABSENT = object()
"""In place of the value of a name that an object does not have itself."""


@contextmanager
def replaced_names(replacements: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set names in this context: each an object, its name, and the value.

    `mock.patch` does the same in ten times the time.
    """
    originals = []
    try:
        for owner, name, value in replacements:
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

    modules: Sequence[Any] = ()
    sizes: Sequence[int] = ()
    """Number of the names in each."""
    results: dict[int, tuple[Any, int, bool]] = field(default_factory=dict)
    """`id` of a module -> the module, its size, and True if it has one of the functions."""
    matches: Sequence[Any] = ()
    """The modules that have one."""


_search = _Search()


def libraries_with(functions: Mapping[int, Any], own: Iterable[Any]) -> Sequence[Any]:
    """The modules, but for the author's `own`, that have a name for one of the functions.

    A module is searched again only when it has got names: few runs import one.
    """
    if len(_search.modules) != len(sys.modules):
        _search.modules = [*sys.modules.values()]
    sizes = [len(getattr(module, "__dict__", ())) for module in _search.modules]
    if sizes != _search.sizes:
        for module, size in zip(_search.modules, sizes, strict=True):
            if _search.results.get(id(module), (module, -1))[1] != size:
                has_one = any(names_of(functions, [module]))
                _search.results[id(module)] = module, size, has_one
        _search.sizes = sizes
        _search.matches = [m for m in _search.modules if _search.results[id(m)][2]]
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

"""What can be said of a backend's sources where nothing compiles them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TypeCheck:
    """A plain C++ compiler can check the types of the backend's C++ units."""

    headers: tuple[str, ...] = ()
    """Pinned headers that the units include beside the framework's, e.g. `sycl`; their release is
    that of the variant's toolkit."""
    definitions: tuple[str, ...] = ()
    """Macros that the backend's own compiler predefines and sources may ask for."""
    stand_ins: tuple[tuple[str, str], ...] = ()
    """(path, text) of headers that the framework's own build for this backend writes, for headers
    that come from another build. They are searched last."""


@dataclass(frozen=True)
class IncludeCheck:
    """Every `#include "..."` must lead to a file of the project."""

    suffixes: tuple[str, ...]
    """Files that are read."""
    generated: tuple[str, ...] = ()
    """Headers that a build writes."""

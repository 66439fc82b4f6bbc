"""The ops that the sources of a package register."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Bindings:
    """The rewritten sources, and what they register."""

    texts: dict[str, str] = field(default_factory=dict)
    """Path -> rewritten text."""
    ops: dict[str, list[str]] = field(default_factory=dict)
    """Path -> the ops that it defines."""
    registering: list[str] = field(default_factory=list)
    """Paths of the sources that register ops."""
    namespaces: set[str] = field(default_factory=set)
    """Names of `TORCH_LIBRARY` that gave way to the build's."""
    notes: list[str] = field(default_factory=list)
    is_opened: bool = False
    """A `TORCH_LIBRARY` has opened the namespace: further ones are fragments."""

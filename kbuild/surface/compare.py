"""What changed between two surfaces, and which of it breaks a caller's code.

Breaking is what makes a call that worked fail: a name or parameter that is gone, a parameter under
another name or at another place, one that must be given now, one that can no longer be given by
name or by position. Annotations and texts may change freely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kbuild.surface.calls import Difference, differences
from kbuild.surface.model import LAYERS, Class, Function, Surface

_PROMISES = {"has_backward": "True", "can_torch_compile": "False"}
"""What a layer says that it can do, and what the client takes a layer to do that says nothing.

Taking it back breaks a model that relies on it.
"""
Entry = Function | Class | None


@dataclass(frozen=True)
class Change:
    """One difference."""

    kind: Literal["added", "removed", "changed"]
    name: str
    """`relu`, `layers.ReLU`, `layers.ReLU.forward`."""
    breaking: bool
    words: str
    """What changed, e.g. "`out` must be given now"."""

    def to_json(self) -> dict[str, Any]:
        """The change as a JSON object."""
        return asdict(self)

    def __str__(self) -> str:
        colon = ":" if self.kind == "changed" else ""
        return f"`{self.name}`{colon} {self.words}"


def compare(old: Surface, new: Surface) -> tuple[Change, ...]:
    """Every change, those that break callers first, then by name."""
    found = [*_tables(_entries(old), _entries(new))]
    return tuple(sorted(found, key=lambda change: (not change.breaking, change.name)))


def _entries(surface: Surface) -> dict[str, Entry]:
    entries: dict[str, Entry] = {function.name: function for function in surface.functions}
    entries |= {found.name: found for found in surface.classes}
    entries |= dict.fromkeys(surface.others)
    return entries | {f"{LAYERS}.{layer.name}": layer for layer in surface.layers}


def _tables(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Change]:
    for name in old.keys() | new.keys():
        if name not in new:
            yield Change("removed", name, breaking=True, words="is gone")
        elif name not in old:
            yield Change("added", name, breaking=False, words="is new")
        else:
            yield from _changed(name, old[name], new[name])


def _changed(name: str, old: Entry, new: Entry) -> Iterator[Change]:
    if isinstance(old, Function) and isinstance(new, Function):
        yield from (_told(name, found) for found in differences(old, new))
    elif isinstance(old, Class) and isinstance(new, Class):
        yield from _classes(name, old, new)
    elif _word(old) != _word(new):
        words = f"was {_word(old)}, is {_word(new)}"
        yield Change("changed", name, breaking=not _is_unread(old, new), words=words)


def _classes(name: str, old: Class, new: Class) -> Iterator[Change]:
    if old.constructor and new.constructor:
        yield from (_told(name, found) for found in differences(old.constructor, new.constructor))
    methods = ({m.name: m for m in old.methods}, {m.name: m for m in new.methods})
    members: tuple[dict[str, Entry], ...] = tuple(
        {f"{name}.{key}": entry for key, entry in table.items()} for table in methods
    )
    yield from _tables(*members)
    yield from _attributes(name, old.attributes, new.attributes)


def _attributes(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for key in sorted((old.keys() | new.keys()) - _PROMISES.keys()):
        yield from _attribute(f"{name}.{key}", old.get(key), new.get(key))
    for key, default in _PROMISES.items():
        before, after = old.get(key, default), new.get(key, default)
        if before != after:
            words = f"was {before}, is {after}"
            yield Change("changed", f"{name}.{key}", breaking=after == "False", words=words)


def _attribute(name: str, old: str | None, new: str | None) -> Iterator[Change]:
    if new is None:
        yield Change("removed", name, breaking=True, words="is gone")
    elif old is None:
        yield Change("added", name, breaking=False, words="is new")
    elif old != new:
        words = f"was {old or 'a property'}, is {new or 'a property'}"
        yield Change("changed", name, breaking=False, words=words)


def _told(name: str, found: Difference) -> Change:
    return Change("changed", name, breaking=found.breaking, words=found.words)


def _word(entry: Entry) -> str:
    if entry is None:
        return "a value"
    return "a class" if isinstance(entry, Class) else "a function"


def _is_unread(*entries: Entry) -> bool:
    """True when one side is a name whose definition was not found, so that nothing is sure."""
    return any(isinstance(entry, Function) and entry.parameters is None for entry in entries)

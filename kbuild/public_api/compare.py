"""Compares two public APIs: which changes there are, and which of them break callers.

A change breaks callers when a call that worked fails: a name or parameter is gone, renamed or
moved, or must be given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from kbuild.public_api.model import (
    LAYERS,
    FunctionParameter,
    ParameterKind,
    PublicApi,
    PublicClass,
    PublicFunction,
)

_BY_POSITION = {ParameterKind.POSITIONAL_ONLY, ParameterKind.NORMAL}
_BY_NAME = {ParameterKind.NORMAL, ParameterKind.KEYWORD_ONLY}


class SignatureDifference(NamedTuple):
    """What differs between two signatures."""

    breaking: bool
    message: str


def compare_signatures(old: PublicFunction, new: PublicFunction) -> Iterator[SignatureDifference]:
    """Every difference; nothing when they are called the same way and read the same."""
    if old.parameters is None or new.parameters is None:
        if old.parameters is not None:
            yield SignatureDifference(False, "its signature can no longer be read")
        elif new.parameters is not None:
            yield SignatureDifference(False, f"its signature can be read: `{new.signature}`")
        return
    differences = list(_SignatureComparison(old.parameters, new.parameters).differences())
    yield from differences
    if not differences and old.signature != new.signature:
        yield SignatureDifference(False, f"is now `{new.signature}`")


class _SignatureComparison:
    """Two lists of parameters."""

    def __init__(self, old: Sequence[FunctionParameter], new: Sequence[FunctionParameter]) -> None:
        self.old, self.new = _by_name(old), _by_name(new)
        self.old_places, self.new_places = _positions(old), _positions(new)
        self.old_kinds = {parameter.kind for parameter in old}
        self.kinds = {parameter.kind for parameter in new}
        self.renamed = dict(self._renamed())

    def differences(self) -> Iterator[SignatureDifference]:
        for name, parameter in self.old.items():
            if name in self.renamed:
                new = self.new[self.renamed[name]]
                breaking = parameter.kind in _BY_NAME or self._takes_a_name(parameter, new)
                yield SignatureDifference(
                    breaking, f"`{parameter.name}` is now called `{new.name}`"
                )
                yield from self._default(parameter, new)
            elif name not in self.new:
                yield from self._gone(parameter)
            else:
                yield from self._kept(parameter, self.new[name])
        taken = {*self.old, *self.renamed.values()}
        yield from (self._added(p) for name, p in self.new.items() if name not in taken)

    def _renamed(self) -> Iterator[tuple[str, str]]:
        """Parameters in whose place stands one that was not there before."""
        at = {place: name for name, place in self.new_places.items()}
        for name, place in self.old_places.items():
            other = at.get(place)
            if name not in self.new and other is not None and other not in self.old:
                yield name, other

    def _gone(self, old: FunctionParameter) -> Iterator[SignatureDifference]:
        if old.variadic:
            yield SignatureDifference(True, f"`{old}` is gone")
        else:
            # True when starred parameters take whatever was given for it, by position and by name.
            needed = {
                ParameterKind.POSITIONAL_ONLY: {ParameterKind.VAR_POSITIONAL},
                ParameterKind.NORMAL: {ParameterKind.VAR_POSITIONAL, ParameterKind.VAR_KEYWORD},
                ParameterKind.KEYWORD_ONLY: {ParameterKind.VAR_KEYWORD},
            }[old.kind]
            taken_in = needed <= self.kinds
            message = f"`{old.name}` is " + ("taken in by a starred parameter" * taken_in or "gone")
            yield SignatureDifference(not taken_in, message)

    def _kept(
        self, old: FunctionParameter, new: FunctionParameter
    ) -> Iterator[SignatureDifference]:
        name = old.name
        if old.variadic != new.variadic or (old.variadic and old.kind != new.kind):
            yield SignatureDifference(True, f"`{old}` is now `{new}`")
            return
        if old.kind in _BY_POSITION and new.kind not in _BY_POSITION:
            yield SignatureDifference(True, f"`{name}` can no longer be given by position")
        elif old.kind in _BY_POSITION and self.old_places[name] != self.new_places[name]:
            places = (
                f"was number {self.old_places[name] + 1}, is number {self.new_places[name] + 1}"
            )
            yield SignatureDifference(True, f"`{name}` {places}")
        if old.kind in _BY_NAME and new.kind not in _BY_NAME:
            yield SignatureDifference(True, f"`{name}` can no longer be given by name")
        if self._takes_a_name(old, new) or self._takes_a_place(old, new):
            message = f"`{name}` now takes what another parameter took before"
            yield SignatureDifference(True, message)
        yield from self._default(old, new)

    def _default(
        self, old: FunctionParameter, new: FunctionParameter
    ) -> Iterator[SignatureDifference]:
        if new.required and not old.required:
            yield SignatureDifference(True, f"`{new.name}` must be given now")
        elif old.required and not new.required:
            message = f"`{new.name}` need not be given any more: `{new.default}`"
            yield SignatureDifference(False, message)
        elif old.default != new.default:
            message = f"the default of `{new.name}` was `{old.default}`, is `{new.default}`"
            yield SignatureDifference(False, message)

    def _added(self, new: FunctionParameter) -> SignatureDifference:
        if new.required:
            return SignatureDifference(True, f"takes a new `{new.name}`, which must be given")
        shifts = new.kind in _BY_POSITION and ParameterKind.VAR_POSITIONAL in self.old_kinds
        return SignatureDifference(shifts, f"takes a new `{new}`" + ", before the star" * shifts)

    def _takes_a_name(self, old: FunctionParameter, new: FunctionParameter) -> bool:
        """True when `f(1, x=2)` gave `x` to `**kwargs` and would now give `x` twice."""
        named = old.kind is ParameterKind.POSITIONAL_ONLY and new.kind is ParameterKind.NORMAL
        return named and ParameterKind.VAR_KEYWORD in self.old_kinds

    def _takes_a_place(self, old: FunctionParameter, new: FunctionParameter) -> bool:
        """True when `f(1, x=2)` gave 1 to another one and would now give it to `x` as well."""
        placed = old.kind not in _BY_POSITION and new.kind in _BY_POSITION
        return placed and self._was_taken(self.new_places[new.name])

    def _was_taken(self, place: int) -> bool:
        return place < len(self.old_places) or ParameterKind.VAR_POSITIONAL in self.old_kinds


def _by_name(parameters: Sequence[FunctionParameter]) -> Mapping[str, FunctionParameter]:
    return {parameter.name: parameter for parameter in parameters}


def _positions(parameters: Sequence[FunctionParameter]) -> Mapping[str, int]:
    positional = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    return {parameter.name: place for place, parameter in enumerate(positional)}


_LAYER_CAPABILITIES = {"has_backward": "True", "can_torch_compile": "False"}
"""What a layer says that it can do, and what the client takes a layer to do that says nothing.

Taking it back breaks a model that relies on it.
"""
ApiEntry = PublicFunction | PublicClass | None


@dataclass(frozen=True)
class ApiChange:
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


def compare_apis(old: PublicApi, new: PublicApi) -> tuple[ApiChange, ...]:
    """Every change, those that break callers first, then by name."""
    changes = _tables(_entries(old), _entries(new))
    return tuple(sorted(changes, key=lambda change: (not change.breaking, change.name)))


def _entries(api: PublicApi) -> dict[str, ApiEntry]:
    entries: dict[str, ApiEntry] = {function.name: function for function in api.functions}
    entries |= {cls.name: cls for cls in api.classes}
    entries |= dict.fromkeys(api.others)
    return entries | {f"{LAYERS}.{layer.name}": layer for layer in api.layers}


def _tables(old: Mapping[str, ApiEntry], new: Mapping[str, ApiEntry]) -> Iterator[ApiChange]:
    for name in old.keys() | new.keys():
        if name not in new:
            yield ApiChange("removed", name, breaking=True, words="is gone")
        elif name not in old:
            yield ApiChange("added", name, breaking=False, words="is new")
        else:
            yield from _changed(name, old[name], new[name])


def _changed(name: str, old: ApiEntry, new: ApiEntry) -> Iterator[ApiChange]:
    if isinstance(old, PublicFunction) and isinstance(new, PublicFunction):
        yield from _signature_changes(name, old, new)
    elif isinstance(old, PublicClass) and isinstance(new, PublicClass):
        if old.constructor and new.constructor:
            yield from _signature_changes(name, old.constructor, new.constructor)
        methods = ({m.name: m for m in old.methods}, {m.name: m for m in new.methods})
        members: tuple[dict[str, ApiEntry], ...] = tuple(
            {f"{name}.{key}": entry for key, entry in table.items()} for table in methods
        )
        yield from _tables(*members)
        yield from _attributes(name, old.attributes, new.attributes)
    elif _kind_text(old) != _kind_text(new):
        message = f"was {_kind_text(old)}, is {_kind_text(new)}"
        yield ApiChange("changed", name, breaking=not _is_unknown(old, new), words=message)


def _attributes(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ApiChange]:
    for key in sorted((old.keys() | new.keys()) - _LAYER_CAPABILITIES.keys()):
        yield from _attribute(f"{name}.{key}", old.get(key), new.get(key))
    for key, default in _LAYER_CAPABILITIES.items():
        before, after = old.get(key, default), new.get(key, default)
        if before != after:
            message = f"was {before}, is {after}"
            yield ApiChange("changed", f"{name}.{key}", breaking=after == "False", words=message)


def _attribute(name: str, old: str | None, new: str | None) -> Iterator[ApiChange]:
    if new is None:
        yield ApiChange("removed", name, breaking=True, words="is gone")
    elif old is None:
        yield ApiChange("added", name, breaking=False, words="is new")
    elif old != new:
        message = f"was {old or 'a property'}, is {new or 'a property'}"
        yield ApiChange("changed", name, breaking=False, words=message)


def _signature_changes(name: str, old: PublicFunction, new: PublicFunction) -> Iterator[ApiChange]:
    for breaking, message in compare_signatures(old, new):
        yield ApiChange("changed", name, breaking, message)


def _kind_text(entry: ApiEntry) -> str:
    if entry is None:
        return "a value"
    return "a class" if isinstance(entry, PublicClass) else "a function"


def _is_unknown(*entries: ApiEntry) -> bool:
    """True when one side is a name whose definition was not found, so that nothing is sure."""
    return any(isinstance(entry, PublicFunction) and entry.parameters is None for entry in entries)

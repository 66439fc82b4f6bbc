"""What differs between two signatures, from the view of those who call the function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbuild.surface.model import Function, Kind, Parameter

_BY_POSITION = {Kind.POSITIONAL_ONLY, Kind.NORMAL}
_BY_NAME = {Kind.NORMAL, Kind.KEYWORD_ONLY}


@dataclass(frozen=True)
class Difference:
    """One difference in words."""

    breaking: bool
    words: str


def differences(old: Function, new: Function) -> Iterator[Difference]:
    """Every difference; nothing when they are called the same way and read the same."""
    if old.parameters is None or new.parameters is None:
        yield from _unknown(old, new)
        return
    found = list(_Comparison(old.parameters, new.parameters).found())
    yield from found
    if not found and old.signature != new.signature:
        yield Difference(breaking=False, words=f"is now `{new.signature}`")


def _unknown(old: Function, new: Function) -> Iterator[Difference]:
    if old.parameters is not None:
        yield Difference(breaking=False, words="its signature can no longer be read")
    elif new.parameters is not None:
        yield Difference(breaking=False, words=f"its signature can be read: `{new.signature}`")


class _Comparison:
    """Two lists of parameters."""

    def __init__(self, old: Sequence[Parameter], new: Sequence[Parameter]) -> None:
        self.old, self.new = _by_name(old), _by_name(new)
        self.old_places, self.new_places = _places(old), _places(new)
        self.old_kinds = {parameter.kind for parameter in old}
        self.kinds = {parameter.kind for parameter in new}
        self.renamed = dict(self._renamed())

    def found(self) -> Iterator[Difference]:
        for name, parameter in self.old.items():
            if name in self.renamed:
                yield from self._rename(parameter, self.new[self.renamed[name]])
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

    def _rename(self, old: Parameter, new: Parameter) -> Iterator[Difference]:
        breaking = old.kind in _BY_NAME or self._takes_a_name(old, new)
        yield Difference(breaking, f"`{old.name}` is now called `{new.name}`")
        yield from self._default(old, new)

    def _gone(self, old: Parameter) -> Iterator[Difference]:
        if old.variadic:
            yield Difference(breaking=True, words=f"`{old}` is gone")
        else:
            taken_in = self._takes_in(old)
            words = f"`{old.name}` is " + ("taken in by a starred parameter" * taken_in or "gone")
            yield Difference(not taken_in, words)

    def _kept(self, old: Parameter, new: Parameter) -> Iterator[Difference]:
        name = old.name
        if old.variadic != new.variadic or (old.variadic and old.kind != new.kind):
            yield Difference(breaking=True, words=f"`{old}` is now `{new}`")
            return
        if old.kind in _BY_POSITION and new.kind not in _BY_POSITION:
            yield Difference(breaking=True, words=f"`{name}` can no longer be given by position")
        elif old.kind in _BY_POSITION and self.old_places[name] != self.new_places[name]:
            places = (
                f"was number {self.old_places[name] + 1}, is number {self.new_places[name] + 1}"
            )
            yield Difference(breaking=True, words=f"`{name}` {places}")
        if old.kind in _BY_NAME and new.kind not in _BY_NAME:
            yield Difference(breaking=True, words=f"`{name}` can no longer be given by name")
        if self._takes_a_name(old, new) or self._takes_a_place(old, new):
            words = f"`{name}` now takes what another parameter took before"
            yield Difference(breaking=True, words=words)
        yield from self._default(old, new)

    def _default(self, old: Parameter, new: Parameter) -> Iterator[Difference]:
        if new.required and not old.required:
            yield Difference(breaking=True, words=f"`{new.name}` must be given now")
        elif old.required and not new.required:
            words = f"`{new.name}` need not be given any more: `{new.default}`"
            yield Difference(breaking=False, words=words)
        elif old.default != new.default:
            words = f"the default of `{new.name}` was `{old.default}`, is `{new.default}`"
            yield Difference(breaking=False, words=words)

    def _added(self, new: Parameter) -> Difference:
        if new.required:
            return Difference(breaking=True, words=f"takes a new `{new.name}`, which must be given")
        shifts = new.kind in _BY_POSITION and Kind.VAR_POSITIONAL in self.old_kinds
        return Difference(shifts, f"takes a new `{new}`" + ", before the star" * shifts)

    def _takes_a_name(self, old: Parameter, new: Parameter) -> bool:
        """True when `f(1, x=2)` gave `x` to `**kwargs` and would now give `x` twice."""
        named = old.kind is Kind.POSITIONAL_ONLY and new.kind is Kind.NORMAL
        return named and Kind.VAR_KEYWORD in self.old_kinds

    def _takes_a_place(self, old: Parameter, new: Parameter) -> bool:
        """True when `f(1, x=2)` gave 1 to another one and would now give it to `x` as well."""
        placed = old.kind not in _BY_POSITION and new.kind in _BY_POSITION
        return placed and self._was_taken(self.new_places[new.name])

    def _was_taken(self, place: int) -> bool:
        return place < len(self.old_places) or Kind.VAR_POSITIONAL in self.old_kinds

    def _takes_in(self, old: Parameter) -> bool:
        """True when starred parameters take whatever was given for it, by position and by name."""
        needed = {
            Kind.POSITIONAL_ONLY: {Kind.VAR_POSITIONAL},
            Kind.NORMAL: {Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD},
            Kind.KEYWORD_ONLY: {Kind.VAR_KEYWORD},
        }[old.kind]
        return needed <= self.kinds


def _by_name(parameters: Sequence[Parameter]) -> Mapping[str, Parameter]:
    return {parameter.name: parameter for parameter in parameters}


def _places(parameters: Sequence[Parameter]) -> Mapping[str, int]:
    given = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    return {parameter.name: place for place, parameter in enumerate(given)}

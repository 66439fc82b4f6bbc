"""A store entry that is made of one wheel, whichever of several that are as good is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.store import Recipe
from kbuild.toolchains.wheels.archive import Place
from kbuild.toolchains.wheels.fetch import Fetcher
from kbuild.toolchains.wheels.lock import LockedRelease, LockedWheel
from kbuild.toolchains.wheels.stubs import StubMaker


@dataclass(frozen=True)
class Tree:
    """What becomes of the wheels of one distribution."""

    kind: str
    """See `Recipe`."""
    layout: int
    """Counts changes of what is made of the same wheel."""
    place: Place
    """Which members are kept."""
    complete: Callable[[Path, StubMaker], Mapping[str, Any]]
    """Adds what no wheel has to the unpacked members; gives what there is to say of that."""

    def recipes(self, locked: LockedRelease) -> tuple[Recipe, ...]:
        """What an installed entry may have been made from: any of the wheels."""
        return tuple(self.recipe(locked.version, wheel) for wheel in locked.wheels)

    def recipe(self, version: str, wheel: LockedWheel) -> Recipe:
        """What is made of one wheel."""
        return Recipe(self.kind, version, {"layout": self.layout, "wheel": wheel.sha256})


@dataclass(frozen=True)
class TreeMaker:
    """Makes the tree of one release."""

    tree: Tree
    locked: LockedRelease
    fetcher: Fetcher
    stubs: StubMaker

    @property
    def recipe(self) -> Recipe:
        """The wheel that there is, and what is made of it.

        Raises:
            ToolchainError: there is none.
        """
        wheel, _ = self.fetcher.index.locate(self.locked.wheels)
        return self.tree.recipe(self.locked.version, wheel)

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the tree; see `kbuild.store.Make`."""
        source = self.fetcher.unpack(self.locked.wheels, root, self.tree.place)
        facts = self.tree.complete(root, self.stubs)
        return {"sources": [source.to_json()], **facts}

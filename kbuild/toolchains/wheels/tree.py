"""A store entry that is made of one wheel, whichever of several that are alike is there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.store import Recipe
from kbuild.toolchains.wheels.archive import Place, as_recorded
from kbuild.toolchains.wheels.fetch import Fetcher
from kbuild.toolchains.wheels.lock import LockedRelease, LockedWheel, header_set
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
        """Fill the tree; see `kbuild.store.Make`.

        Raises:
            ToolchainError: the headers are not those that the lock names.
        """
        source = self.fetcher.unpack(self.locked.wheels, root, self.tree.place)
        if self.locked.headers is not None:
            self._refuse_other_headers(root, source.filename)
        facts = self.tree.complete(root, self.stubs)
        return {"sources": [source.to_json()], **facts}

    def _refuse_other_headers(self, root: Path, wheel: str) -> None:
        digests = {
            path.relative_to(root).as_posix(): as_recorded(hashlib.sha256(path.read_bytes()))
            for path in root.rglob("*")
            if path.is_file()
        }
        found = header_set(digests)
        if found != self.locked.headers:
            raise ToolchainError(
                f"{wheel} has other headers than the lock names for {self.locked.version}: "
                f"sha256 {found}",
                hint="take the file away, or pin it with `kbuild toolchain lock`",
            )

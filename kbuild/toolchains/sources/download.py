"""What the ways to fetch headers have in common: a recipe for the store, and how to fill it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.store import Entry, Make, Recipe, Store
from kbuild.toolchains.sources.pins import Pin
from kbuild.toolchains.sources.tree import HeaderSource, fault, source_of


@dataclass(frozen=True)
class Download:
    """One way to fetch one dependency."""

    pin: Pin
    way: str
    """For the list of what was tried."""
    origin: str
    digest: str
    """What is known of the content beforehand, and so before it is fetched."""
    inputs: Mapping[str, Any]
    """What determines the content."""
    make: Make

    @property
    def recipe(self) -> Recipe:
        """The store's entry."""
        return Recipe(f"source-{self.pin.name}", self.pin.version, self.inputs)

    def expected(self, store: Store) -> HeaderSource:
        """What would be used, were it fetched."""
        root = store.place(self.recipe).root
        return source_of(self.pin, root, self.origin, self.digest)

    def installed(self, store: Store) -> HeaderSource | None:
        """What was fetched earlier."""
        entry = store.find(self.recipe)
        return None if entry is None else self._source(entry.touch())

    def install(self, store: Store) -> HeaderSource:
        """Fetch it, unless another process has done so meanwhile.

        Raises:
            ToolchainError: it cannot be fetched, or is not what it should be.
        """
        return self._source(store.ensure(self.recipe, self._checked))

    def _source(self, entry: Entry) -> HeaderSource:
        return source_of(self.pin, entry.root, entry.facts["origin"], entry.facts["digest"])

    def _checked(self, root: Path) -> Mapping[str, Any]:
        facts = {"origin": self.origin, "digest": self.digest, **self.make(root)}
        wrong = fault(self.pin, root)
        if wrong is not None:
            raise ToolchainError(f"what was fetched {wrong}")
        return facts

"""Headers of a device language, from the wheel of its runtime: for checking types, not compiling.

No wheel holds a SYCL compiler, but the runtime's wheel holds every SYCL header. They are a
hundredth of it, and fetched by ranges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.store import Recipe
from kbuild.toolchains.wheels.fetch import Fetcher
from kbuild.toolchains.wheels.lock import LockedWheel

_LAYOUT = 1
"""Counts changes of what `make` does with the same wheel."""
INCLUDE_FOLDER = "include"
# `.data/data` is what pip installs into the prefix; its lib/clang is for a clang that is not there.
_MEMBER = re.compile(r"[^/]+\.data/data/(include/.+)|[^/]+\.dist-info/(LICENSE[^/]*|METADATA)")
PROJECTS = {"sycl": "intel-sycl-rt"}
"""Name of the headers -> the project whose wheels have them."""


def headers_recipe(name: str, wheel: LockedWheel) -> Recipe:
    """The wheel, and what is made of it."""
    return Recipe(name, wheel.version, {"layout": _LAYOUT, "wheel": wheel.sha256})


@dataclass(frozen=True)
class HeaderMaker:
    """Makes the tree of one release: `include/`, and the licence."""

    wheel: LockedWheel
    fetcher: Fetcher

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the tree; see `kbuild.store.Make`."""
        return {"sources": [self.fetcher.unpack((self.wheel,), root, _place).to_json()]}


def _place(name: str) -> str | None:
    match = _MEMBER.fullmatch(name)
    return match[1] or match[2] if match else None

"""What is compiled and linked against of one TVM-FFI release, from one wheel.

The C++ headers call the C functions of `libtvm_ffi.so` and nothing else of it; neither depends on
the interpreter that the wheel is for. The library is a link stub: with `tvm_ffi` imported, the real
one is in the process already, and the loader finds it by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.store import Recipe
from kbuild.toolchains.wheels.fetch import Fetcher
from kbuild.toolchains.wheels.lock import LockedRelease, LockedWheel
from kbuild.toolchains.wheels.stubs import StubMaker, declared

PROJECT = "apache-tvm-ffi"
LIBRARY = "libtvm_ffi.so"
INCLUDE_FOLDER = "tvm_ffi/include"
LINK_FOLDER = "link"
_LAYOUT = 1
"""Counts changes of what `make` does with the same wheel."""
_WANTED = re.compile(
    r"tvm_ffi/include/.+|[^/]+\.dist-info/(METADATA|(licenses/)?(LICENSE|NOTICE).*)"
)
_FUNCTION = re.compile(r"TVMFFI[A-Z]\w*")


def tvm_ffi_recipes(locked: LockedRelease) -> tuple[Recipe, ...]:
    """What an installed entry may have been made from: any of the wheels."""
    return tuple(_recipe(locked.version, wheel) for wheel in locked.wheels)


def _recipe(version: str, wheel: LockedWheel) -> Recipe:
    return Recipe("tvm-ffi", version, {"layout": _LAYOUT, "wheel": wheel.sha256})


@dataclass(frozen=True)
class TvmFfiMaker:
    """Makes the tree of one release."""

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
        return _recipe(self.locked.version, wheel)

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the tree; see `kbuild.store.Make`."""
        source = self.fetcher.unpack(self.locked.wheels, root, place)
        self.stubs.make(root / LINK_FOLDER / LIBRARY, LIBRARY, c_functions(root / INCLUDE_FOLDER))
        return {"sources": [source.to_json()]}


def place(name: str) -> str | None:
    """Which members of the wheel are kept; see `archive.Place`."""
    return name if _WANTED.fullmatch(name) else None


def c_functions(include: Path) -> Iterator[str]:
    """What the headers declare of the C interface."""
    return filter(_FUNCTION.fullmatch, declared(sorted(include.rglob("*_api.h"))))

"""One store entry: Debian's nvcc in a prefix of headers and libraries from wheels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.store import Recipe
from kbuild.toolchains.debian.deb import unpack
from kbuild.toolchains.debian_nvcc import licence
from kbuild.toolchains.debian_nvcc.pins import Pins, layout, text
from kbuild.toolchains.wheels.cuda import CudaMaker, cuda_recipe
from kbuild.toolchains.wheels.lock import LockedToolkit

_LAYOUT = 1
"""Counts changes of what `make` does with the same inputs."""
_EMPTY_ARCHIVE = b"!<arch>\n"


def recipe_of(pins: Pins, headers: LockedToolkit) -> Recipe:
    """The package and the wheels, and how they are put together."""
    inputs = {"layout": _LAYOUT, "debian": pins.digest, "wheels": cuda_recipe(headers).to_json()}
    return Recipe("debian-nvcc", pins.nvcc, inputs)


@dataclass(frozen=True)
class DebianNvccMaker:
    """Makes the prefix."""

    pins: Pins
    wheels: CudaMaker
    debs: Callable[[], list[Path]]
    """Fetches the packages."""

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the prefix; see `kbuild.store.Make`."""
        facts = self.wheels.make(root)
        for deb in self.debs():
            unpack(deb, root, layout().destination)
        (root / "bin" / "nvcc.profile").write_text(text("nvcc.profile"))
        # Relocatable device code is not linked; nvcc names the library all the same.
        (root / "lib" / "libcudadevrt.a").write_bytes(_EMPTY_ARCHIVE)
        packages = [
            {
                "filename": package.file,
                "sha256": package.sha256,
                "size": package.size,
                "fetched": package.size,
                "how": "apt",
            }
            for package in self.pins.packages
        ]
        return {"sources": [*facts["sources"], *packages], "license": licence.NAME}

"""One thing that went into a build: what it is, which bytes it was, how it enters the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Enters = Literal["tool", "headers", "static", "device", "interface"]
"""How: it only worked on the files; its inline code is compiled in; it is linked in; it is linked
into device code; only names and versions of functions were taken from it."""


@dataclass(frozen=True, order=True)
class Ingredient:
    """A wheel, a package, a checkout, a program or a folder of headers."""

    name: str
    version: str
    digest: tuple[str, str]
    """Algorithm as in-toto names it (`sha256`, `gitCommit`), and the value in hex."""
    covers: str
    """What the digest is of, in words: `the wheel`, `the program and those that it starts`."""
    enters: Enters
    purl: str = ""
    """Package URL; empty where no ecosystem has the thing."""
    licence: str = ""
    """SPDX expression as its publisher declares it; empty where nobody here knows."""

    @property
    def is_contained(self) -> bool:
        """True when code of it can be in the result."""
        return self.enters in ("headers", "static", "device")

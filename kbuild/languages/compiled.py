"""A unit that was compiled: its image with the code."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbuild.languages.image import Image
from kbuild.languages.unit import Unit


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a unit."""

    unit: Unit
    image: Image
    code: bytes
    """A cubin, PTX text, an hsaco, or an object with a cubin in it."""
    seconds: float = field(default=0.0, compare=False)
    """What compiling it took, whenever that was."""
    cached: bool = field(default=False, compare=False)
    """Whether it was there already."""

    def __post_init__(self) -> None:
        if not self.code:
            raise ValueError(f"the image `{self.image.entry}` for {self.image.arch} is empty")
        target = self.unit.target
        kinds = {target.kind} if target.kind == "ptx" else {target.kind, "object"}
        if self.image.arch != target.arch or self.image.kind not in kinds:
            raise ValueError(f"an image for {self.image.target} of a unit for {target}")

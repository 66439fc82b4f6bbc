"""What an image is compiled for: `sm_90a`, `compute_80` (PTX), `gfx942`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kbuild.backends.capability import Capability

Kind = Literal["cubin", "ptx", "hsaco", "object"]

_SM = re.compile(r"(?P<kind>sm|compute)_(?P<major>[1-9]\d?)(?P<minor>\d)(?P<feature>[af]?)")
_CPU = "cpu"
_GFX = re.compile(r"gfx(?:[1-9]\d?)[0-9a-f]{2}")


@dataclass(frozen=True, order=True)
class Target:
    """An arch, and which kind of code for it."""

    arch: str
    """`sm_80`, `sm_90a` (this chip), `sm_100f` (its family), `gfx942`."""
    kind: Kind
    """PTX is compiled by the driver, for the arch and those after it. An object is host code that
    launches the machine code within it."""

    def __post_init__(self) -> None:
        if (self.arch, self.kind) == (_CPU, "object"):
            return
        forms = {"hsaco": (_GFX,), "cubin": (_SM,), "ptx": (_SM,), "object": (_SM, _GFX)}
        if not any(form.fullmatch(self.arch) for form in forms.get(self.kind, ())):
            raise ValueError(f"`{self.arch}` is no arch of {self.kind} images")
        if self.arch.startswith("compute_"):
            raise ValueError(f"the arch of `{self.arch}` is `{self.arch.replace('compute', 'sm')}`")

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `sm_90a`, `compute_80` or `gfx942`.

        Raises:
            ValueError: the text is none of these.
        """
        if text == _CPU:
            return CPU
        if text.startswith("gfx"):
            return cls(text, "hsaco")
        match = _SM.fullmatch(text)
        if match is None:
            raise ValueError(
                f"`{text}` is not an arch; write e.g. `sm_90a`, `compute_80`, `gfx942`"
            )
        arch = text.replace("compute_", "sm_")
        return cls(arch, "ptx" if match["kind"] == "compute" else "cubin")

    def __str__(self) -> str:
        return self.arch.replace("sm_", "compute_") if self.kind == "ptx" else self.arch

    @property
    def capability(self) -> Capability | None:
        """The compute capability; None for AMD's archs and the CPU."""
        match = _SM.fullmatch(self.arch)
        if match is None:
            return None
        return Capability(int(match["major"]), int(match["minor"]), match["feature"])

    def is_one_of(self, archs: tuple[str, ...]) -> bool:
        """True when one of `archs`, as `build.toml` writes them, means this one.

        `9.0` means `sm_90` and `sm_90a`, `9.0a` only the latter.

        Raises:
            ValueError: one of them is not an arch.
        """
        return any(self._is(arch) for arch in archs)

    def _is(self, arch: str) -> bool:
        own = self.capability
        if arch.startswith("gfx") or own is None:
            return arch == self.arch
        wanted = Capability.parse(arch).target
        return own == wanted or (not wanted.feature and own.base == wanted.base)


CPU = Target(_CPU, "object")
"""The host's processor, which kbuild knows nothing more of."""


def targets(arch: str) -> tuple[Target, ...]:
    """What an arch of `build.toml` asks for: `8.0+PTX` asks for `sm_80` and `compute_80`.

    Raises:
        ValueError: it is not an arch.
    """
    if arch.startswith("gfx"):
        return (Target.parse(arch),)
    wanted = Capability.parse(arch)
    code = Target(f"sm_{wanted.number}", "cubin")
    return (code, Target(code.arch, "ptx")) if wanted.ptx else (code,)

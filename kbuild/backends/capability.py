"""CUDA compute capabilities as values: `8.0`, `9.0a`, `12.0f`, `12.1+PTX`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_PATTERN = re.compile(
    r"(?P<major>[1-9]\d?)\.(?P<minor>\d)(?P<feature>[af]?)(?P<ptx>\+PTX)?", re.ASCII
)
_OTHER_SPELLING = re.compile(
    r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)([af]?)", re.ASCII | re.IGNORECASE
)
# Majors that a CUDA release ever had or may get soon; anything else is a slip of the keyboard.
_MAJORS = range(3, 20)


@dataclass(frozen=True, order=True)
class Capability:
    """One compute capability; ordered as people order versions, `9.0` before `9.0a`."""

    major: int
    minor: int
    feature: str = ""
    """`a`: code for exactly this chip; `f`: code for its family."""
    ptx: bool = False
    """Also ship PTX, which newer GPUs compile when they load it."""

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Read `9.0a` or `12.1+PTX`.

        Raises:
            ValueError: the text is not a capability.
        """
        match = _PATTERN.fullmatch(text)
        if match is None or int(match["major"]) not in _MAJORS:
            raise ValueError(f"`{text}` is not a CUDA capability; {_advice(text)}")
        return cls(int(match["major"]), int(match["minor"]), match["feature"], bool(match["ptx"]))

    @property
    def target(self) -> Capability:
        """The same capability without the wish for PTX."""
        return replace(self, ptx=False)

    @property
    def base(self) -> tuple[int, int]:
        """Major and minor alone."""
        return self.major, self.minor

    @property
    def number(self) -> str:
        """The number in nvcc's flags: `90a`."""
        return f"{self.major}{self.minor}{self.feature}"

    @property
    def gencode(self) -> tuple[str, ...]:
        """Flags for nvcc: machine code, and PTX if requested."""
        compute = f"compute_{self.number}"
        codes = (f"sm_{self.number}", *((compute,) if self.ptx else ()))
        return tuple(f"-gencode=arch={compute},code={code}" for code in codes)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.feature}{'+PTX' if self.ptx else ''}"


def shared_code(
    archs: Iterable[Capability], chains: Iterable[Sequence[Capability]]
) -> dict[Capability, Capability]:
    """Target -> the target whose machine code it runs: the first of its chain that is asked for.

    Args:
        archs: what is asked for; the wish for PTX does not matter here.
        chains: capabilities of which each one's machine code also runs on those after it.
    """
    targets = {arch.target for arch in archs}
    runs = {target: target for target in targets}
    for chain in chains:
        there = [target for target in chain if target in targets]
        runs |= dict.fromkeys(there, there[0]) if there else {}
    return runs


def _advice(text: str) -> str:
    guess = _OTHER_SPELLING.fullmatch(text)
    if guess and int(guess[1]) in _MAJORS and not _PATTERN.fullmatch(text):
        return f"did you mean `{guess[1]}.{guess[2]}{guess[3].lower()}`?"
    return "write e.g. `9.0`, `9.0a` or `12.0+PTX`"


_NAMED_ARCHS = {
    "Kepler+Tesla": "3.7", "Kepler": "3.5+PTX", "Maxwell+Tegra": "5.3", "Maxwell": "5.0;5.2+PTX",
    "Pascal": "6.0;6.1+PTX", "Volta+Tegra": "7.2", "Volta": "7.0+PTX", "Turing": "7.5+PTX",
    "Ampere+Tegra": "8.7", "Ampere": "8.0;8.6+PTX", "Ada": "8.9+PTX", "Hopper": "9.0+PTX",
    "Blackwell+Tegra": "11.0", "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}  # fmt: skip
"""Generations that cpp_extension knows; longer names first, because the others are in them."""


def read_arch_list(text: str) -> tuple[str, ...]:
    """The archs of a `TORCH_CUDA_ARCH_LIST`, as `torch.utils.cpp_extension` reads it.

    `9.0+PTX` and the like, each once; nothing for this machine's, which `native` names too.
    """
    for name, archs in _NAMED_ARCHS.items():
        text = text.replace(name, archs)
    listed = dict.fromkeys(filter(None, re.split(r"[;\s]+", text)))
    return () if [*listed] == ["native"] else tuple(listed)

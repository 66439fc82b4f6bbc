"""What differs between two variant directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["changed", "missing", "added"]
_WORDS = {
    "changed": "differs",
    "missing": "is not there any more",
    "added": "was not there before",
}


@dataclass(frozen=True)
class Place:
    """One place where a binary differs."""

    section: str
    """An ELF section; empty in files of other kinds."""
    symbol: str = ""
    """The function or object there; empty when none is known."""
    offset: int | None = None
    """First differing byte, from the beginning of the section, or of the file without one."""
    before: str = ""
    after: str = ""
    note: str = ""
    """What else is to be said, e.g. another size."""

    def __str__(self) -> str:
        """`.text+0x10 in f: 90 90 -> 90 cc (32 -> 48 bytes)`."""
        where = self.section or "file"
        where += f"+{self.offset:#x}" if self.offset is not None else ""
        where += f" in {self.symbol}" if self.symbol else ""
        change = f": {self.before} -> {self.after}" if self.before or self.after else ""
        return f"{where}{change}" + (f" ({self.note})" if self.note else "")

    def to_json(self) -> dict[str, Any]:
        """The place as a JSON object."""
        return dict(vars(self))


@dataclass(frozen=True)
class Difference:
    """One file that differs."""

    path: str
    """POSIX path relative to the variant directory."""
    kind: Kind
    places: tuple[Place, ...] = ()
    """For binaries."""
    lines: tuple[str, ...] = ()
    """For text: a unified diff."""

    @property
    def sentence(self) -> str:
        """`_ops.py differs`."""
        return f"{self.path} {_WORDS[self.kind]}"

    @property
    def details(self) -> tuple[str, ...]:
        """Places and lines, as text."""
        return (*map(str, self.places), *self.lines)

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {
            "path": self.path,
            "kind": self.kind,
            "places": [place.to_json() for place in self.places],
            "lines": list(self.lines),
        }

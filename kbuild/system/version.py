"""Dotted version numbers as `build.toml`, compilers and Torch write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

DEVELOPMENT_ID = "dev"
"""Ends the op namespace of builds by `kbuild build --dev`, `kbuild dev` and `kbuild.load`."""
_PATTERN = re.compile(r"\d{1,18}(\.\d{1,18})*")


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """Dot-separated unsigned integers. `13` equals `13.0`; printing keeps the written form."""

    parts: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `"13.0"`.

        Raises:
            ValueError: anything but dot-separated unsigned integers.
        """
        if not _PATTERN.fullmatch(text):
            raise ValueError(f"`{text}` is not a version: write dot-separated numbers, e.g. `12.8`")
        return cls(tuple(int(part) for part in text.split(".")))

    @property
    def major(self) -> int:
        """The first part."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """The second part, 0 when it was not written."""
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def release(self) -> str:
        """`major.minor`, whatever was written behind."""
        return f"{self.major}.{self.minor}"

    @property
    def compact(self) -> str:
        """`major` and `minor` without a dot, as variant names write them: `130`, `213`."""
        return f"{self.major}{self.minor}"

    def _key(self) -> tuple[int, ...]:
        parts = list(self.parts)
        while parts and parts[-1] == 0:
            parts.pop()
        return tuple(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return ".".join(str(part) for part in self.parts)

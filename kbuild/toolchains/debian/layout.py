"""Where the files of packages go: the `[[take]]` tables of a `layout.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Rules; the first whose pattern matches a path as a whole decides."""

    rules: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read `layout.toml`."""
        import tomli

        rules = tomli.loads(text)["take"]
        return cls(tuple((re.compile(rule["from"]), rule["to"]) for rule in rules))

    def destination(self, path: str) -> str | None:
        """Where a package's file goes; None when it is not needed."""
        for pattern, target in self.rules:
            match = pattern.fullmatch(path)
            if match is not None:
                return match.expand(target)
        return None

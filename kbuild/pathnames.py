"""Names of folders and files that CMake and ninja cannot take, however they are quoted.

What works is not refused: white space, `#`, `%`, `$`, control characters, quotes in sources.
`tests/integration/test_names.py` builds with each of these names.
"""

from __future__ import annotations

import re
from typing import Literal

Use = Literal["source", "project", "package"]
"""What a path is of: a source or folder of sources, the project's folder, a file that is copied."""
_STRANGE: dict[Use, re.Pattern[str]] = {
    # Ends a line or a path of ninja's, an element of a list; begins an expression.
    "source": re.compile(r"[\n\r;|]|\$<"),
    # That, and what ends a word, cannot be in the path of a generated file, divides options of the
    # linker, begins a reference to a variable; white space goes from the end of a setting.
    "project": re.compile(r"[\n\r;|\"<>\\,]|\$<|\$(?:ENV|CACHE)?\{|[ \t]+\Z"),
    # An installation script quotes nothing.
    "package": re.compile(r"[;\"\\]|\$<|\$(?:ENV|CACHE)?\{"),
}


def unbuildable(path: str, use: Use) -> str:
    """What in the path cannot be built with, in words; empty when all of it can."""
    if any("\ud800" <= char <= "\udfff" for char in path):
        return "bytes that are not UTF-8"
    match = _STRANGE[use].search(path)
    if match is not None:
        piece = match[0]
        words = "a line break" if piece in "\r\n" else "white space at the end"
        return words if piece.isspace() else f"`{piece}`"
    if use == "project" and path.count("[") != path.count("]"):
        return "an odd square bracket"  # CMake does not divide a list inside of them
    return ""

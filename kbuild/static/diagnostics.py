"""What g++ and clang++ say, as findings at places of the project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kbuild.checks.base import Finding

CHECK = "types"
SHOWN = 5
"""Errors that are shown of one unit."""
_LINE = re.compile(
    r"^(?:In file included from |\s+from )?(?P<file>/[^:\n]+):(?P<line>\d+)(?::\d+)?[:,]?\s*"
    r"(?:(?P<kind>(?:fatal )?error|note): )?(?P<text>.*)$"
)


def findings(said: str, source: str, root: Path) -> tuple[Finding, ...]:
    """The unit's errors in the compiler's order, the first few of them.

    An error in a header of somebody else is placed at the line of the project that leads there.

    Args:
        said: the compiler's words; paths are absolute.
        source: the unit, relative to the project.
        root: the project.
    """
    found = list(dict.fromkeys(_errors(said, source, root)))
    if not found:
        words = said.strip().splitlines()
        what = f"the compiler failed: {words[-1] if words else 'it said nothing'}"
        return (Finding(CHECK, "error", source, what),)
    more = len(found) - SHOWN
    if more > 0:
        found[SHOWN:] = [Finding(CHECK, "error", source, f"{more} more errors")]
    return tuple(found)


def _errors(said: str, source: str, root: Path) -> Iterator[Finding]:
    led = ""
    waiting: tuple[str, str] | None = None  # an error elsewhere: what, and the best place so far
    for line in said.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        place = _place(match, root)
        kind = match["kind"] or ""
        if kind.endswith("error"):
            if waiting:
                yield Finding(CHECK, "error", waiting[1] or source, waiting[0])
            waiting = None
            if place:
                yield Finding(CHECK, "error", place, match["text"])
            else:
                waiting = (f"{match['text']} (in {Path(match['file']).name})", led)
        elif place and kind == "note" and waiting and not waiting[1]:  # clang tells the way later
            waiting = (waiting[0], place)
        elif place and kind != "note":  # g++ tells the way before
            led = place
    if waiting:
        yield Finding(CHECK, "error", waiting[1] or source, waiting[0])


def _place(match: re.Match[str], root: Path) -> str:
    """`file:line` in the project; empty for a file elsewhere."""
    path = Path(match["file"])
    if not path.is_relative_to(root):
        return ""
    return f"{path.relative_to(root).as_posix()}:{match['line']}"

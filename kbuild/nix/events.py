"""One line of Nix's `internal-json` log: what starts, ends and is said.

The numbers are those of Nix 2.8 to 2.34 (`ActivityType` and `ResultType` in its logger).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.untrusted import parse_json, reading

PREFIX = "@nix "
COPY, BUILDS, BUILD, SUBSTITUTE = 100, 104, 105, 108
"""Activities: a path is copied, all builds together, one build, a path is fetched."""
LOG_LINE, PHASE, PROGRESS = 101, 104, 105
"""Results: a line that a builder said, its phase, how far an activity has come."""
_PAINT = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Event:
    """One line; parts that its action does not have are empty."""

    action: str
    """`start`, `stop`, `result` or `msg`."""
    id: int = 0
    type: int = 0
    fields: tuple[Any, ...] = ()
    level: int = 0
    """Of a message: 0 is an error, 1 a warning."""
    text: str = ""
    """Of a message, without colours."""
    raw: str = ""
    """Of an error: its innermost sentence."""
    file: str = ""
    line: int = 0


def read_event(line: str) -> Event | None:
    """The event of a line; None when it is none of Nix's."""
    if not line.startswith(PREFIX):
        return None
    try:
        with reading("nix", "an event of Nix"):
            data = parse_json(line[len(PREFIX) :], "nix", "an event of Nix")
            return Event(
                action=str(data["action"]),
                id=int(data.get("id") or 0),
                type=int(data.get("type") or 0),
                fields=tuple(data.get("fields") or ()),
                level=int(data.get("level") or 0),
                text=plain(str(data.get("msg") or "")),
                raw=plain(str(data.get("raw_msg") or "")),
                file=str(data.get("file") or ""),
                line=int(data.get("line") or 0),
            )
    except DamagedFileError:
        return None


def plain(text: str) -> str:
    """Without colours."""
    return _PAINT.sub("", text)


def name_of(path: str) -> str:
    """`relu-torch213` of `/nix/store/<hash>-relu-torch213.drv`."""
    return path.rsplit("/", 1)[-1].partition("-")[2].removesuffix(".drv") or path

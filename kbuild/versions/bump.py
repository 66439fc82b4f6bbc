"""What a change of the interface asks of the version's number.

A version is a promise to those who load it: `get_kernel(..., version=1)` goes on working whatever
is published as version 1 later, with whichever variant fits. So it must be raised when a call
breaks, and when something new would be in some variants of the version and not in others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kbuild.surface import Change
from kbuild.versions.model import Version

_NUMBERED = re.compile(r"v(\d{1,9})")


@dataclass(frozen=True)
class Bump:
    """What is asked."""

    state: Literal["none", "needed", "done"]
    reason: str = ""
    old: int | None = None
    new: int | None = None
    """Numbers of the two versions, where their names say them."""

    def to_json(self) -> dict[str, Any]:
        """The answer as a JSON object."""
        wanted = self.old + 1 if self.state == "needed" and self.old is not None else None
        return {"bump": self.state, "reason": self.reason or None, "at_least": wanted}

    def __str__(self) -> str:
        if self.state == "done":
            return f"the version was raised from {self.old} to {self.new}: {self.reason}"
        if self.state == "needed":
            asked = "another number" if self.old is None else f"at least {self.old + 1}"
            return f"the version must be raised to {asked}: {self.reason}"
        return "no new version is needed"


def bump_of(interface: Sequence[Change], old: Version, new: Version) -> Bump:
    """What the changes of the interface from one version to the next ask for."""
    reason = _reason(interface, old, new)
    numbers = _number(old), _number(new)
    if not reason:
        return Bump("none", "", *numbers)
    before, after = numbers
    if before is not None and after is not None and after > before:
        return Bump("done", reason, before, after)
    return Bump("needed", reason, before, after)


def _reason(interface: Sequence[Change], old: Version, new: Version) -> str:
    breaking = [change for change in interface if change.breaking]
    if breaking:
        more = f", and {len(breaking) - 1} more" if len(breaking) > 1 else ""
        return f"{breaking[0]}{more}, which breaks callers"
    added = [change for change in interface if change.kind == "added"]
    without = [name for name in old.variants if name not in new.variants]
    if added and without:
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        return f"{added[0]}, and {without[0]}{more} would stay without it"
    return ""


def _number(version: Version) -> int | None:
    match = _NUMBERED.fullmatch(version.name)
    if match:
        return int(match[1])
    found = {made.version for made in version.metadata.values() if made}
    return found.pop() if len(found) == 1 else None

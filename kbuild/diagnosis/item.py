"""One line of the diagnosis, and how a program is asked for its version."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kbuild.run import Runner

State = Literal["ok", "missing", "optional"]
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")


@dataclass(frozen=True)
class Item:
    """One thing that is there or not."""

    name: str
    state: State
    """`optional` when it is missing and most builds do without."""
    found: str
    """Version and place; why it does not do when it is there and not good enough."""
    needed_for: str
    mend: str = ""
    """A command, when something is to be done."""
    without: str = ""
    """What can be done while it is missing."""

    def to_json(self) -> dict[str, Any]:
        """The item as a JSON object."""
        return asdict(self)


def version_of(program: Path, runner: Runner) -> str:
    """What `--version` says, e.g. `12.2.0`."""
    done = runner.run((str(program), "--version"))
    match = _VERSION.search(done.output)
    return match[0] if match and done.ok else "version unknown"


def major(version: str) -> int | None:
    """`12` of `12.2.0`; None when there is no number."""
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else None

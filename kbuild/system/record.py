"""Answers that are kept with everything that they follow from: given again while nothing changed.

One file holds one answer. A process that only asks whether it still holds imports this, and
compares one `stat` for each path; whatever is wrong with a record, there is none.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from kbuild.system.code_digest import package_digest, write_json
from kbuild.system.file_state import all_unchanged, parse_file_states

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kbuild.system.file_state import FileState

_FORMAT = 1


class Record:
    """An answer, and what it follows from beside the question."""

    def __init__(
        self,
        answer: Mapping[str, Any],
        observed: Mapping[str, FileState],
        kbuild: str,
        until: float | None = None,
    ) -> None:
        self.answer = answer
        """JSON."""
        self.observed = observed
        """Files and folders as they were looked at: absolute paths, or relative to the project."""
        self.kbuild = kbuild
        """Digest of the kbuild that answered."""
        self.until = until
        """When it ends to hold, in seconds since the epoch; None when only changes end it."""

    def holds(self, root: Path, cache: Path) -> bool:
        """True when asking again would give the same answer."""
        return (
            (self.until is None or time.time() < self.until)
            and self.kbuild == package_digest(cache)
            and all_unchanged(root, self.observed)
        )

    def write(self, path: Path) -> None:
        """Save the record.

        Raises:
            OSError: the folder cannot be written to.
            ValueError: the answer is not JSON.
        """
        write_json(path, {"format": _FORMAT, **vars(self)})


def read_record(path: Path) -> Record | None:
    """The record there; None when there is none that this kbuild can read."""
    try:
        data = json.loads(path.read_bytes())
        if data.pop("format") != _FORMAT:
            return None
        data["observed"] = parse_file_states(data["observed"])
        return Record(**data)
    except Exception:  # noqa: BLE001 - `untrusted.read_cache_file`, without its imports
        return None

"""Keeps answers together with their inputs, and repeats them while the inputs are unchanged.

A process that only asks whether an answer still holds imports this, and takes one `stat` per path.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import all_unchanged, parse_file_states

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kbuild.system.cache import Cache
    from kbuild.system.file_state import FileState


class Record:
    """An answer, and the files that it depends on."""

    def __init__(
        self,
        answer: Any,
        observed: Mapping[str, FileState],
        kbuild: str,
        until: float | None = None,
    ) -> None:
        self.answer = answer
        """JSON."""
        self.observed = observed
        """States of files and folders that were read: absolute paths, or relative to a root."""
        self.kbuild = kbuild
        """Digest of the kbuild that answered."""
        self.until = until
        """Time at which it expires, in seconds since the epoch; None if only changes end it."""

    def holds(self, root: Path, cache: Path | None) -> bool:
        """True when asking again would give the same answer; `cache` is kbuild's cache folder."""
        return (
            (self.until is None or time.time() < self.until)
            and self.kbuild == package_digest(cache)
            and all_unchanged(root, self.observed)
        )

    def write(self, cache: Cache, key: str = "") -> None:
        """Keep the record.

        Raises:
            ValueError, TypeError: the answer is not JSON.
        """
        cache.put_json(key, vars(self))


def texts(*names: str) -> Callable[[Mapping[str, Any]], dict[str, str]]:
    """Parse an answer with these texts."""
    return lambda answer: {name: str(answer[name]) for name in names}


def read_record(
    cache: Cache, key: str = "", parse: Callable[[Mapping[str, Any]], Any] = dict
) -> Record | None:
    """The record of that key, with its answer as `parse` reads it; None when there is none."""

    def parse_record(data: Mapping[str, Any]) -> Record:
        observed = parse_file_states(data["observed"])
        until = data["until"] if data["until"] is None else float(data["until"])
        return Record(parse(data["answer"]), observed, data["kbuild"], until)

    return cache.get_json(key, parse_record)

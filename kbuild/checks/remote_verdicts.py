"""Answers of probes in the cache that several machines share.

Where the local cache compares times and inodes, which differ between machines, an answer holds
here if everything that decided it has the same content: the files that the process mapped and
imported, and the names in the folders in which it searched.

    verdicts/<kk>/<name>    the answer, and the content of each file and folder
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.checks.probe_process import ProbeAnswer
from kbuild.errors import DamagedFileError
from kbuild.runtime.file_state import hash_bytes, identify, stat_state
from kbuild.runtime.remote_cache import RemoteCache
from kbuild.runtime.untrusted import MAX_DOCUMENT_BYTES, reading

_BYTES_PER_SECOND = 400e6
"""How fast files are read and hashed, where they are in memory: half of what was measured."""
_BYTECODE = "__pycache__"
_HOME = "~/"


@dataclass(frozen=True)
class RemoteVerdicts:
    """The answers that other machines got."""

    remote: RemoteCache

    def find(self, name: str | None) -> ProbeAnswer | None:
        """The answer to the question of that name, with the files that decided it."""
        if name is None or not self.remote.is_asked:
            return None
        data = self.remote.get(_verdict_name(name), MAX_DOCUMENT_BYTES)
        answer, seconds = None, 0.0
        if data is not None:
            try:
                with reading("a verdict", "a verdict of the shared cache"):
                    document = json.loads(data)
                    seconds = float(document["seconds"])
                    contents = {_local(path): state for path, state in document["files"].items()}
                    if document["name"] == name and _holds(contents, seconds):
                        answer = ProbeAnswer(
                            str(document["state"]),
                            str(document["reason"]),
                            {**document["facts"]},
                            files=tuple(contents),
                            unread=bool(document["unread"]),
                        )
            except DamagedFileError:
                answer = None
        self.remote.count(hit=answer is not None, received=len(data or b""), saved=seconds)
        return answer

    def send(self, name: str | None, answer: ProbeAnswer, python: Path, began: int) -> None:
        """Send the answer of a probe that was just started at `began` (ns), in the background.

        One that costs more to verify than to ask for stays here.
        """
        if name is None or not self.remote.is_written:
            return
        seconds = (time.time_ns() - began) / 1e9
        paths = dict.fromkeys((str(python), *answer.files))

        def files() -> list[tuple[str, bytes]]:
            if _seconds_to_read(paths) > seconds or any(_is_young(path, began) for path in paths):
                return []
            document = {
                "name": name,
                "state": answer.state,
                "reason": answer.reason,
                "facts": answer.facts,
                "unread": answer.unread,
                "seconds": round(seconds, 2),
                "files": {_portable(path): _content(path) for path in paths},
            }
            return [(_verdict_name(name), json.dumps(document).encode())]

        self.remote.put(files)


def _holds(contents: dict[str, Any], seconds: float) -> bool:
    """Whether everything is as it was there; not where to see that takes longer than to ask."""
    if _seconds_to_read(contents) > seconds:
        return False
    return all(_content(path) == state for path, state in contents.items())


def _seconds_to_read(paths: Iterable[str]) -> float:
    states = (stat_state(path) for path in paths)
    return sum(state[0] for state in states if state is not None) / _BYTES_PER_SECOND


def _is_young(path: str, began: int) -> bool:
    """Whether it may have changed since `began` (ns)."""
    state = stat_state(path)
    return state is not None and max(state[1:3]) >= began


def _content(path: str) -> str | None:
    """What a file holds, or the names in a folder; None for what is not there."""
    identity = identify(path)
    if identity is None or identity[4]:
        return None if identity is None else identity[4]
    names = sorted({entry.name for entry in Path(path).iterdir()} - {_BYTECODE})
    return f"folder {hash_bytes('/'.join(names).encode('utf-8', 'surrogateescape'))}"


def _portable(path: str) -> str:
    """The path without the name of the user."""
    home = f"{Path.home()}/"
    return _HOME + path.removeprefix(home) if path.startswith(home) else path


def _local(path: str) -> str:
    return f"{Path.home()}/{path.removeprefix(_HOME)}" if path.startswith(_HOME) else path


def _verdict_name(name: str) -> str:
    return f"verdicts/{name[:2]}/{name[2:]}"

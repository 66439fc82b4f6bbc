"""What was measured so far, safe against a sudden end: one line of JSON for each job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.untrusted import objects_in, reading


@dataclass(frozen=True)
class Outcome:
    """What a race led to."""

    times: Mapping[int, float] = field(default_factory=dict)
    """Candidate -> microseconds."""
    failed: Mapping[int, str] = field(default_factory=dict)
    """Candidates that do not run, with the reason."""
    wrong: Mapping[int, str] = field(default_factory=dict)
    """Candidates with other results, with the difference."""
    default: int | None = None
    """The first candidate that runs and is right."""
    error: str = ""
    """Why nothing was measured."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """What the probe says of a job.

        Raises:
            DamagedFileError: that is no outcome.
        """
        with reading("the answer", "an outcome"):
            return cls._of(data)

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Outcome:
        default = data.get("default")
        if default is not None and not isinstance(default, int):
            raise ValueError(f"`{default}` is no candidate")
        return cls(
            times={int(one): float(us) for one, us in data.get("times", {}).items()},
            failed={int(one): str(why) for one, why in data.get("failed", {}).items()},
            wrong={int(one): str(why) for one, why in data.get("wrong", {}).items()},
            default=default,
            error=str(data.get("error", "")),
        )


class Journal:
    """Outcomes by job; kept in a file to which lines are only ever added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._done: dict[str, Mapping[str, Any]] = {}
        self._crashes: dict[str, dict[int, str]] = {}
        for line in objects_in(path, "a journal"):
            try:
                with reading(path, "a journal"):
                    self._take(line)
            except DamagedFileError:
                continue  # it is measured again

    def outcome(self, job: str) -> Outcome | None:
        """The outcome of a job; None when it was not measured yet."""
        with self._lock:
            said = self._done.get(job)
            if said is None:
                return None
            outcome = Outcome.from_json(said)
            crashed = self._crashes.get(job, {})
        return Outcome(
            outcome.times,
            {**outcome.failed, **crashed},
            outcome.wrong,
            outcome.default,
            outcome.error,
        )

    def crashed(self, job: str) -> frozenset[int]:
        """The candidates that ended the process which ran them."""
        with self._lock:
            return frozenset(self._crashes.get(job, {}))

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep `{"done": job, ...}` or `{"crashed": job, "candidate": n, "reason": "..."}`."""
        with self._lock:
            self._take(line)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A line that was cut off must not swallow this one.
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(line) + "\n")
                file.flush()

    def _take(self, line: Mapping[str, Any]) -> None:
        if "done" in line:
            Outcome.from_json(line)
            self._done[str(line["done"])] = line
        elif "crashed" in line:
            own = self._crashes.setdefault(str(line["crashed"]), {})
            own[int(line["candidate"])] = str(line["reason"])

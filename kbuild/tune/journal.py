"""What was measured so far, safe against a sudden end: one line of JSON for each job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any


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
        """What the probe says of a job."""
        return cls(
            times={int(one): float(us) for one, us in data.get("times", {}).items()},
            failed={int(one): str(why) for one, why in data.get("failed", {}).items()},
            wrong={int(one): str(why) for one, why in data.get("wrong", {}).items()},
            default=data.get("default"),
            error=str(data.get("error", "")),
        )


class Journal:
    """Outcomes by job; kept in a file to which lines are only ever added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._done: dict[str, Mapping[str, Any]] = {}
        self._crashes: dict[str, dict[int, str]] = {}
        for line in self._lines():
            self._take(line)

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
            self._done[str(line["done"])] = line
        elif "crashed" in line:
            own = self._crashes.setdefault(str(line["crashed"]), {})
            own[int(line["candidate"])] = str(line["reason"])

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text("utf-8", errors="replace")
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if isinstance(document, dict):
                found.append(document)
        return found

"""The requests, in the order in which they were answered."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from tests.support.hub.faults import COMMITS

PATIENCE_S = 5.0


@dataclass(frozen=True)
class Record:
    """One request."""

    method: str
    target: str
    """Path and query, as sent."""
    status: int
    """0 when the connection was cut instead."""
    is_known: bool
    agent: str


class RequestLog:
    """All requests since the last `clear`, over all connections.

    A client can be done with an answer before the server has noted it: reading the log waits for
    the requests that are under way.
    """

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._under_way = 0
        self._settled = threading.Condition()

    def begin(self) -> None:
        """A request has come; `add` follows."""
        with self._settled:
            self._under_way += 1

    def add(self, record: Record) -> None:
        """The request is answered, or its connection cut."""
        with self._settled:
            self._records.append(record)
            self._under_way -= 1
            self._settled.notify_all()

    @property
    def records(self) -> list[Record]:
        """All of them, in the order of their ends."""
        with self._settled:
            self._settled.wait_for(lambda: not self._under_way, PATIENCE_S)
            return list(self._records)

    def matching(self, expression: str = "") -> list[Record]:
        """Those whose `METHOD /path?query` matches."""
        return [r for r in self.records if re.search(expression, f"{r.method} {r.target}")]

    @property
    def commits(self) -> list[Record]:
        """Commits that were made and answered."""
        return [record for record in self.matching(COMMITS) if record.status == 200]

    def clear(self) -> None:
        """Forget everything so far."""
        with self._settled:
            self._settled.wait_for(lambda: not self._under_way, PATIENCE_S)
            self._records.clear()

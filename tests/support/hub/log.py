"""What was asked, in the order in which it was answered."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from tests.support.hub.faults import COMMITS, Kind

OK = range(200, 300)
PATIENCE = 5.0
"""Seconds that reading the log waits at most."""


@dataclass(frozen=True)
class Record:
    """One request."""

    method: str
    target: str
    """Path and query, as sent."""
    status: int
    """0 when the connection was cut instead."""
    received: int
    """Bytes of the body that came."""
    sent: int
    """Bytes of the body that went."""
    fault: Kind | None = None
    known: bool = True
    """False when there is no such route."""
    agent: str = ""
    """The `User-Agent`."""

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"


class RequestLog:
    """All requests since the last `clear`, over all connections.

    A client can be done with an answer before the server has noted it: reading the log waits for
    the requests that are under way.
    """

    def __init__(self) -> None:
        self.leaks: list[str] = []
        """Requests to the storage, which is not the Hub, that carried a token."""
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
            self._settled.wait_for(lambda: not self._under_way, PATIENCE)
            return list(self._records)

    def matching(self, expression: str = "") -> list[Record]:
        """Those whose `METHOD /path?query` matches."""
        return [record for record in self.records if re.search(expression, record.line)]

    @property
    def commits(self) -> list[Record]:
        """Commits that were made and answered."""
        return [record for record in self.matching(COMMITS) if record.status in OK]

    @property
    def unknown(self) -> list[Record]:
        """Requests that this server does not know."""
        return [record for record in self.records if not record.known]

    def clear(self) -> None:
        """Forget everything so far."""
        with self._settled:
            self._settled.wait_for(lambda: not self._under_way, PATIENCE)
            self._records.clear()
            self.leaks.clear()

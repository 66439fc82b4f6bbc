"""What was asked, in the order in which it was answered."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

from tests.hub.faults import COMMITS, Kind

OK = range(200, 300)


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


@dataclass
class RequestLog:
    """All requests since the last `clear`, over all connections."""

    records: list[Record] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    """Requests to the storage, which is not the Hub, that carried a token."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, record: Record) -> None:
        with self._lock:
            self.records.append(record)

    def matching(self, expression: str = "") -> list[Record]:
        """Those whose `METHOD /path?query` matches."""
        return [record for record in list(self.records) if re.search(expression, record.line)]

    @property
    def commits(self) -> list[Record]:
        """Commits that were made and answered."""
        return [record for record in self.matching(COMMITS) if record.status in OK]

    @property
    def unknown(self) -> list[Record]:
        """Requests that this server does not know."""
        return [record for record in list(self.records) if not record.known]

    def clear(self) -> None:
        with self._lock:
            self.records.clear()
            self.leaks.clear()

"""What a process said, bounded: a compiler's warnings can be larger than the machine's memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

KEPT = 1 << 20
"""Characters that are kept of the beginning, and as many of the end."""


@dataclass
class Ends:
    """The beginning and the end of a text that comes line by line; short texts are kept whole."""

    limit: int | None = KEPT
    """Characters of each end; None keeps everything."""
    _head: list[str] = field(default_factory=list)
    _tail: deque[str] = field(default_factory=deque)
    _head_size: int = 0
    _tail_size: int = 0
    _dropped: int = 0

    def take(self, line: str) -> None:
        """One more line, its newline included."""
        if self.limit is None or (not self._tail and self._head_size + len(line) <= self.limit):
            self._head.append(line)
            self._head_size += len(line)
            return
        self._tail.append(line[-self.limit :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size > self.limit and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft())
            self._dropped += 1

    @property
    def text(self) -> str:
        """What was kept, with a line that says how many others are left out."""
        gap = [f"[{self._dropped} lines are left out here]\n"] if self._dropped else []
        return "".join((*self._head, *gap, *self._tail))

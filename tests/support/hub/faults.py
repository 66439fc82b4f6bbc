"""Faults on demand: which requests go wrong, how often, and in what way.

| kind | what happens | is the request carried out? |
|---|---|---|
| `429` | too many requests, with `Retry-After` | no |
| `500` | internal error | no |
| `403` | forbidden | no |
| `cut` | the connection is reset | no |
| `slow` | the answer waits | yes |
| `stale` | somebody else commits first (only before commits) | yes: a stale parent is refused |
| `cut-answer` | the connection ends half-way through the answer | yes |
| `cut-after-commit` | the connection ends before any of the answer | yes |
| `500-after-commit` | internal error | yes |
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

KINDS = (
    *("429", "500", "403", "cut", "slow", "stale"),
    *("cut-answer", "cut-after-commit", "500-after-commit"),
)
COMMITS = r"POST /api/\w+/[^/]+/[^/]+/commit/"


def _fits(kind: str, request: str) -> bool:
    return kind != "stale" or bool(re.search(COMMITS, request))


@dataclass
class Rule:
    """Faults for some requests."""

    choose: Callable[[str], str | None]
    """The kind of fault of a request, if any."""
    times: int | None
    after: int = 0

    def take(self, request: str) -> str | None:
        if self.times == 0 or (kind := self.choose(request)) is None:
            return None
        if self.after:
            self.after -= 1
            return None
        if self.times is not None:
            self.times -= 1
        return kind


@dataclass
class Faults:
    """The plan. Every request is asked about once; the first rule with a fault for it decides."""

    fired: list[tuple[str, str]] = field(default_factory=list)
    """The faults so far: kind, and `METHOD /path`."""
    _rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, match: str = "", *, times: int | None = 1, after: int = 0) -> None:
        """Plan a fault.

        Args:
            kind: see the table above.
            match: an expression searched in `METHOD /path?query`.
            times: how many requests; None for all.
            after: how many matching requests come through before.
        """

        def choose(request: str) -> str | None:
            return kind if re.search(match, request) and _fits(kind, request) else None

        with self._lock:
            self._rules.append(Rule(choose, times, after))

    def at_random(self, seed: int, probability: float, *, times: int) -> None:
        """Let each request fail with a probability, the same for the same seed and order."""
        source = random.Random(seed)  # noqa: S311

        def choose(request: str) -> str | None:
            is_hit, kind = source.random() < probability, source.choice(KINDS)
            return kind if is_hit and _fits(kind, request) else None

        with self._lock:
            self._rules.append(Rule(choose, times))

    def take(self, request: str) -> str | None:
        """The fault of a request, if any. `request` is `METHOD /path?query`."""
        with self._lock:
            for rule in self._rules:
                if (kind := rule.take(request)) is not None:
                    self.fired.append((kind, request))
                    return kind
        return None

    def clear(self) -> None:
        """Plan nothing more; what has fired is forgotten too."""
        with self._lock:
            self._rules.clear()
            self.fired.clear()

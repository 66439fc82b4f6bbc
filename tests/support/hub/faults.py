"""Faults on demand: which requests go wrong, how often, and in what way.

| kind | what happens | is the request carried out? |
|---|---|---|
| `429` | too many requests, with `Retry-After` | no |
| `500` | internal error | no |
| `403` | forbidden | no |
| `cut` | the connection is reset, half-way through the request's body if it has one | no |
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "429",
    "500",
    "403",
    "cut",
    "slow",
    "stale",
    "cut-answer",
    "cut-after-commit",
    "500-after-commit",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMMITS = r"POST /api/\w+/[^/]+/[^/]+/commit/"
# Kinds that only mean something for some requests.
_ONLY: dict[str, str] = dict.fromkeys(("stale",), COMMITS)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong with one request."""

    kind: Kind
    seconds: float = 0.5
    """How long `slow` waits."""
    retry_after: int | None = 0
    """What `429` asks for, in seconds; None for no header."""


@dataclass
class Rule:
    """Faults for the requests that match."""

    fault: Fault
    match: re.Pattern[str]
    times: int | None
    after: int

    def take(self, request: str) -> Fault | None:
        if not self.match.search(request) or self.times == 0:
            return None
        if self.after:
            self.after -= 1
            return None
        if self.times is not None:
            self.times -= 1
        return self.fault


@dataclass
class Dice:
    """Faults at random, the same for the same seed and order of requests."""

    source: random.Random
    probability: float
    kinds: Sequence[Kind]
    match: re.Pattern[str]
    fault: Fault
    times: int | None

    def take(self, request: str) -> Fault | None:
        if not self.match.search(request) or self.times == 0:
            return None
        hit = self.source.random() < self.probability
        kind = self.source.choice(self.kinds)
        if not hit or not re.search(_ONLY.get(kind, ""), request):
            return None
        if self.times is not None:
            self.times -= 1
        return Fault(kind, self.fault.seconds, self.fault.retry_after)


@dataclass
class Faults:
    """The plan. Every request is asked about once; the first rule with a fault for it decides."""

    fired: list[tuple[Kind, str]] = field(default_factory=list)
    """What went wrong so far: kind, and `METHOD /path`."""
    _rules: list[Rule | Dice] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self,
        kind: Kind,
        match: str | None = None,
        *,
        times: int | None = 1,
        after: int = 0,
        seconds: float = 0.5,
        retry_after: int | None = 0,
    ) -> None:
        """Plan a fault.

        Args:
            kind: see the table above.
            match: an expression searched in `METHOD /path?query`; commits for `stale`, else all.
            times: how many requests; None for all.
            after: how many matching requests come through before.
            seconds: how long `slow` waits.
            retry_after: seconds that `429` asks for, None for no header. Real ones ask for minutes.
        """
        chosen = re.compile(match if match is not None else _ONLY.get(kind, ""))
        with self._lock:
            self._rules.append(Rule(Fault(kind, seconds, retry_after), chosen, times, after))

    def at_random(
        self,
        seed: int,
        probability: float,
        kinds: Sequence[Kind] = KINDS,
        *,
        match: str = "",
        times: int | None = None,
        seconds: float = 0.01,
        retry_after: int | None = 0,
    ) -> None:
        """Let each matching request fail with a probability; parameters as for `add`."""
        fault = Fault("slow", seconds, retry_after)
        dice = Dice(random.Random(seed), probability, kinds, re.compile(match), fault, times)  # noqa: S311
        with self._lock:
            self._rules.append(dice)

    def take(self, request: str) -> Fault | None:
        """The fault of a request, if any. `request` is `METHOD /path?query`."""
        with self._lock:
            for rule in self._rules:
                if (fault := rule.take(request)) is not None:
                    self.fired.append((fault.kind, request))
                    return fault
        return None

    def clear(self) -> None:
        """Plan nothing more; what has fired is forgotten too."""
        with self._lock:
            self._rules.clear()
            self.fired.clear()

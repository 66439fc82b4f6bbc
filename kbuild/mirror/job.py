"""What publishing is asked for, what it knows while it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from kbuild.hub.layout import Layout
from kbuild.hub.patience import Patience
from kbuild.mirror.places import Place
from kbuild.mirror.store import Store

PATIENT_TRIES = 5
"""How often in a row a store may fail to answer."""


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


@dataclass
class Job:
    """A version on its way into a mirror."""

    store: Store
    place: Place
    layout: Layout
    patience: Patience = field(default_factory=lambda: Patience(tries=PATIENT_TRIES))
    now: Callable[[], datetime] = _now
    sent: int = 0
    """Bytes that were sent so far."""


@dataclass(frozen=True)
class Outcome:
    """How it ended."""

    changed: bool
    snapshot: str
    sent: int
    """Bytes."""

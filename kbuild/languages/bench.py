"""Putting one unit to a worker: with room for it, again when the worker dies, in words if not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kbuild.build.budget import Run
from kbuild.build.unit.ledger import Ledger
from kbuild.errors import IncompleteError
from kbuild.languages.cache import Made
from kbuild.languages.conversation import Conversation, Makes, WorkerDiedError
from kbuild.languages.fitting import PRUNED
from kbuild.languages.image import Image
from kbuild.languages.inputs import Snapshot
from kbuild.languages.pool import Pool
from kbuild.languages.refusals import Refusal
from kbuild.languages.releases import most_shared
from kbuild.languages.timesheet import Timesheet
from kbuild.languages.unit import Unit
from kbuild.languages.workplace import Workplace

T = TypeVar("T")
_ATTEMPTS = 2
PATIENCE = 600.0
"""Seconds that one unit may take."""
_WEIGHT = 600
"""MiB of a worker that has compiled nothing yet; what one was seen to hold counts if it is more."""
_LAST_WORDS = 12
"""Lines of a dead worker's that are shown."""
_UNUSED = ("profile_scratch",)


@dataclass(frozen=True)
class Asked:
    """A request, and where it goes."""

    place: Workplace
    sources: Snapshot
    folder: Path
    """Where the sources are laid out for workers."""
    request: Mapping[str, Any]
    variant: str = ""
    """Whose build asks first."""


class Bench:
    """Talks to workers."""

    def __init__(self, run: Run, pool: Pool, patience: float = PATIENCE) -> None:
        self._run, self._pool, self._patience = run, pool, patience
        self._sheet = Timesheet(str(run.log))
        self._heaviest = _WEIGHT
        self._lock = threading.Lock()

    def describe(self, asked: Asked) -> Mapping[str, Any] | Refusal:
        """What the worker says of the sources.

        Raises:
            IncompleteError: the run ended.
        """

        def ask(worker: Conversation) -> Mapping[str, Any] | Refusal:
            answer = self._ask(worker, asked, "describe", lambda _: True)
            if "refusal" in answer:
                return Refusal.read(answer["refusal"])
            described: Mapping[str, Any] = answer["answer"]
            return described

        return self._attempted(asked, ask)

    def compile(self, asked: Asked, unit: Unit, makes: Makes = lambda _: True) -> Made | Refusal:
        """The unit's image, or why there is none.

        Args:
            asked: the request.
            unit: what is compiled.
            makes: see `Conversation.ask`; where it says no, the image comes without code.

        Raises:
            IncompleteError: the run ended.
        """

        def ask(worker: Conversation) -> Made | Refusal:
            with self._sheet.turn(unit, asked.variant, worker) as turn:

                def told(kernel: str) -> bool:
                    turn.is_made = makes(kernel)
                    return turn.is_made

                answer = self._ask(worker, asked, "compile", told)
                if "refusal" in answer:
                    return Refusal.read(answer["refusal"])
                turn.is_refused = False
                code = (worker.scratch / "code").read_bytes() if turn.is_made else None
                return made_of(answer["answer"], code, asked.place, unit)

        return self._attempted(asked, ask)

    def _attempted(self, asked: Asked, ask: Callable[[Conversation], T | Refusal]) -> T | Refusal:
        deaths: list[WorkerDiedError] = []
        while len(deaths) < _ATTEMPTS:
            try:
                with self._pool.worker(
                    asked.place.kind(asked.request), fresh=bool(deaths)
                ) as worker:
                    return ask(worker)
            except WorkerDiedError as death:
                if self._run.is_ending or self._pool.is_closed:
                    raise IncompleteError("the run ended before all was compiled") from None
                deaths.append(death)
        last = deaths[-1]
        message = f"the compiler {last.how}, {_ATTEMPTS} times"
        return Refusal(message, excerpt=tuple(last.said.splitlines()[-_LAST_WORDS:]))

    def _ask(
        self, worker: Conversation, asked: Asked, what: str, makes: Makes
    ) -> Mapping[str, Any]:
        request = {
            "ask": what,
            "root": str(asked.sources.write(asked.folder)),
            "sources": [path for path, _ in asked.sources.texts],
            "output": str(worker.scratch / "code"),
            **asked.request,
        }
        ledger = self._room(worker)
        try:
            return worker.ask(request, self._patience, makes)
        finally:
            ledger.release()
            self._weigh(worker)

    def _room(self, worker: Conversation) -> Ledger:
        """Wait until there is memory for the worker, beside all compilers of the run."""
        budget = self._run.budget
        jobs = budget.jobs if self._run.server else 0
        ledger = Ledger(str(self._run.folder / "ledger"), budget.memory, jobs, worker.pid)
        ledger.take(self._heaviest, lambda: self._run.is_ending or self._pool.is_closed)
        return ledger

    def _weigh(self, worker: Conversation) -> None:
        peak = worker.peak
        with self._lock:
            self._heaviest = max(self._heaviest, peak)


def made_of(
    answer: Mapping[str, Any], code: bytes | None, place: Workplace, unit: Unit
) -> Made | Refusal:
    """What a worker compiled, unless it is of no use; no code is that of another unit."""
    facts = {name: value for name, value in answer.items() if name not in _UNUSED}
    if answer.get("pruned"):
        return Made(None, b"", PRUNED)
    if code == b"":
        return Refusal("the compiler made an empty image")
    if answer.get("profile_scratch"):
        return Refusal("the function writes a profile, which a launcher cannot provide for")
    compiler = place.compiler(unit.target)
    try:
        image = Image.from_json(
            {**facts, "language": unit.language, "arch": unit.target.arch, "compiler": compiler}
        )
    except ValueError as error:
        return Refusal(str(error))
    most = most_shared(unit.target)
    if image.shared > most:
        return Made(None, b"", f"it needs {image.shared} bytes of shared memory, {most} are there")
    return Made(image, code or b"")

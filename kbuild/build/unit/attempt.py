"""Starting the compiler of one unit: when there is room for it, and again when it was ended."""

from __future__ import annotations

import os

from kbuild.build.unit import process, threads
from kbuild.build.unit.intermediates import Intermediates
from kbuild.build.unit.ledger import Ledger
from kbuild.build.unit.overseer import Overseer
from kbuild.build.unit.weights import weight

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kbuild.build.unit.command import Command
    from kbuild.build.unit.log import Value
    from kbuild.build.unit.process import Ended
    from kbuild.build.unit.settings import Settings

_REGROWTH = 1.5
"""What a unit that gave way is reserved afterwards, times what it held then."""
_TROUBLE = "the memory ledger cannot be used: {}"


class Attempts:
    """The attempts to compile one unit; `record` is told what they took."""

    def __init__(  # noqa: PLR0917
        self,
        settings: Settings,
        command: Command,
        tokens: threads.Tokens,
        record: dict[str, Value],
        warn: Callable[[str], None],
        begin: Callable[[], None],
    ) -> None:
        """`begin` is called whenever the compiler is about to start, after all waiting."""
        self._settings, self._command = settings, command
        self._tokens, self._record, self._warn = tokens, record, warn
        self._begin = begin
        self.killed: Ended | None = None
        """The attempt that the system killed, when there was one."""

    def perform(self, last: tuple[int, float] | None) -> Ended | None:
        """Compile; `last` is what `History` has of the unit. None when time was over before."""
        needed = weight(self._command.language, last)
        most = threads.most_threads(self._command, self._settings, os.environ)
        ended = self._with_room(needed, most)
        if ended is None or not ended.was_killed:
            return ended
        self.killed = ended
        return self._with_room(max(needed, self._settings.memory), 1)

    def _with_room(self, needed: int, most: int) -> Ended | None:
        """Attempts until one is not ended for the sake of others."""
        while True:
            overseer, ended = self._within(needed, most)
            if ended is None or not overseer.gave_way:
                return ended
            self._record["restarts"] = int(self._record.get("restarts", 0)) + 1
            needed, most = max(needed + 1, int(overseer.used * _REGROWTH)), 1

    def _within(self, needed: int, most: int) -> tuple[Overseer, Ended | None]:
        """One attempt, with room for `needed` MiB in each of at most `most` threads."""
        ledger = Ledger(self._settings.ledger, self._settings.memory, self._settings.jobs)
        overseer = Overseer(ledger)
        waited = self._take(ledger, needed, most)
        if waited is None:
            return overseer, None
        self._record |= {"weight": needed, "waited": waited}
        try:
            self._begin()
            return overseer, self._run(ledger.threads, overseer)
        finally:
            self._release(ledger)
            self._note(overseer)

    def _take(self, ledger: Ledger, needed: int, most: int) -> float | None:
        try:
            return ledger.take(needed, self._settings.is_over, most)
        except (OSError, ValueError) as error:
            self._warn(_TROUBLE.format(error))
            ledger.threads = 1
            return 0.0

    def _release(self, ledger: Ledger) -> None:
        try:
            ledger.release()
        except (OSError, ValueError) as error:
            self._warn(_TROUBLE.format(error))

    def _note(self, overseer: Overseer) -> None:
        self._record["paused"] = float(self._record.get("paused", 0.0)) + overseer.paused
        if overseer.trouble:
            self._warn(_TROUBLE.format(overseer.trouble))

    def _run(self, count: int, overseer: Overseer) -> Ended:
        """Start the compiler with at most `count` threads."""
        scratch = f"{self._settings.run}/said-{os.getpid()}"
        if self._settings.tool or self._command.language != "CUDA":
            argv = [*self._settings.tool.split(), *self._command.argv]
            return process.run(argv, scratch, overseer.look)
        client = threads.is_client(self._settings)
        try:
            if not client:
                count = 1 + self._tokens.take(count - 1)
            self._record |= {"threads": count}
            words = threads.threads_words(count, client=client)
            with Intermediates(self._command, self._settings.run) as kept:
                argv = [*self._command.plain, *words, *kept.words]
                return process.run(argv, scratch, overseer.look)
        finally:
            self._tokens.give_back()

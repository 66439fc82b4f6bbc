"""Watching over one running unit: it is halted while memory is short, and goes on afterwards."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself loads enum
import os
import time

from kbuild.build.unit.ledger import GIVES_WAY, PAUSED
from kbuild.build.unit.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbuild.build.unit.ledger import Ledger

_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


class Overseer:
    """Called now and then while a compiler runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tree = Tree(0)
        self._halted = 0.0
        self.used = 0
        """MiB that were seen at most."""
        self.paused = 0.0
        """Seconds for which the unit was halted."""
        self.gave_way = False
        """True when the unit was ended for others: it is to be started again."""
        self.trouble = ""
        """Why the ledger could not be asked; the unit then runs on unwatched."""

    def look(self, pid: int) -> None:
        """See what the compiler `pid` holds, and do what the ledger says."""
        if self.trouble or self.gave_way:
            return
        self._tree = Tree(pid)
        held = self._tree.memory()
        self.used = max(self.used, held)
        try:
            self._follow(self._ledger.advise(held))
        except (OSError, ValueError) as error:
            self.trouble = str(error)
            self._go_on()

    def _follow(self, advice: str) -> None:
        if advice == GIVES_WAY:
            self.gave_way = True
            self._tree.send(_signal.SIGKILL)
            self._go_on()
        elif advice == PAUSED:
            self._halt()
        else:
            self._go_on()

    def _halt(self) -> None:
        if not self._halted:
            self._halted = time.time()
            for number in _ENDING:
                _signal.signal(number, self._end)
        self._tree.send(_signal.SIGSTOP)

    def _go_on(self) -> None:
        if self._halted:
            self.paused += time.time() - self._halted
            self._halted = 0.0
            self._tree.send(_signal.SIGCONT)
            for number in _ENDING:
                _signal.signal(number, _signal.SIG_DFL)

    def _end(self, number: int, _: object) -> None:
        """Die of a signal, and let the compiler die too: a halted process does not."""
        self._tree.send(number)
        self._go_on()
        os.kill(os.getpid(), number)

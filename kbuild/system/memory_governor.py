"""The memory budget of all units of a run.

Reservations in a locked file, and pausing a running compiler's process tree while memory is
short.

Runs once per translation unit without `site`: imports next to nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself loads enum
import fcntl
import os
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20
_SIGNAL_ROUNDS = 3


class ProcessTree:
    """The processes below and including `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def memory(self) -> int:
        """MiB of physical memory; shared pages count for each process."""
        return sum(map(_resident_pages, _descendants(self._pid))) * _PAGE // _MIB

    def send(self, number: int) -> None:
        """Send a signal to all, parents first, and to those that they started meanwhile."""
        pids: set[int] = set()
        for _ in range(_SIGNAL_ROUNDS):
            fresh = [pid for pid in _descendants(self._pid) if pid not in pids]
            for pid in fresh:
                try:
                    os.kill(pid, number)
                except OSError:  # it has ended
                    continue
            pids.update(fresh)
            if not fresh:
                return


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    # Each thread has children of its own: `nvcc --threads` starts compilers from several.
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return
    for thread in threads:
        for child in _read_proc(f"/proc/{pid}/task/{thread}/children").split():
            yield from _descendants(int(child))


def _resident_pages(pid: int) -> int:
    fields = _read_proc(f"/proc/{pid}/statm").split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read_proc(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # it has ended
        return b""
    finally:
        os.close(handle)


_OVERTAKING_SECONDS = 15.0
"""Seconds for which a waiting unit lets lighter ones overtake."""
_PAUSES = (0.02, 0.05, 0.1, 0.25)
_GROWTH = 1.25
"""Factor by which a unit that has outgrown its reservation is expected to grow further."""
_HUGE = 1 << 31
"""Larger than any process id, amount or count."""
RUNNING, WAITING, PAUSED, MUST_RESTART = "r", "w", "p", "g"


class MemoryReservation:
    """The line of one unit: state, MiB per thread, start of its wait or run, MiB used, threads."""

    def __init__(
        self, pid: int, state: str, weight: int, since: float, used: int = 0, *, threads: int = 1
    ) -> None:
        self.pid, self.state, self.weight = pid, state, weight
        self.since, self.used, self.threads = since, used, threads

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.weight} {self.since:.3f} {self.used} {self.threads}"

    def running(self, threads: int = 0) -> MemoryReservation:
        """The claim in the state RUNNING, with other threads if given."""
        count = threads or self.threads
        return MemoryReservation(
            self.pid, RUNNING, self.weight, self.since, self.used, threads=count
        )

    @property
    def processes(self) -> list[int]:
        """MiB that each process of a running unit may come to hold."""
        if self.used <= self.weight * self.threads:
            return [self.weight] * self.threads
        return [int(self.used * _GROWTH)]

    @property
    def age(self) -> tuple[float, int]:
        """Sort key of claims, the oldest first."""
        return self.since, self.pid


class MemoryReservations:
    """The memory budget in MiB, and the locked file with the reservations.

    `jobs` is how many compiler processes there are at the most; 0 when nobody keeps count.
    """

    def __init__(self, path: str, budget: int, jobs: int = 0, pid: int = 0) -> None:
        """`pid` is the process that compiles, if it is not this one."""
        self._path = path
        self._pid = pid or os.getpid()
        self._budget = budget
        self._jobs = jobs
        self.threads = 1
        """Number of threads that the unit has room for."""

    def take(self, weight: int, expired: Callable[[], bool], threads: int = 1) -> float | None:
        """Wait for room; seconds waited, or None when `expired()` came first."""
        began = time.time()
        claim = MemoryReservation(self._pid, WAITING, max(1, weight), began)
        pauses = iter(_PAUSES)
        pause = next(pauses)
        while not self._admit(claim, threads):
            if expired():
                self.release()
                return None
            time.sleep(pause)
            pause = next(pauses, pause)
        return time.time() - began

    def release(self) -> None:
        """Release the process's reservation."""
        with _LockedReservations(self._path) as table:
            table.claims = [claim for claim in table.claims if claim.pid != self._pid]

    def advise(self, used: int) -> str:
        """Record that the process's unit holds `used` MiB; return the state that it must take.

        The youngest units pause until what runs fits again. The oldest always runs, so that
        memory comes free; when even that is too much, the youngest of the paused gives way.
        """
        with _LockedReservations(self._path) as table:
            own = [claim for claim in table.claims if claim.pid == self._pid]
            if not own:
                return RUNNING
            others = [claim for claim in table.claims if claim.pid != self._pid]
            own[0].used = used
            advice = self._advice(own[0], [other for other in others if other.state != WAITING])
            own[0].state = PAUSED if advice == MUST_RESTART else advice
        return advice

    def _advice(self, claim: MemoryReservation, others: list[MemoryReservation]) -> str:
        running = [other for other in others if other.state == RUNNING]
        paused = [other for other in others if other.state == PAUSED]
        if claim.state == RUNNING:
            too_much = not self._is_room([claim, *others])
            is_youngest = all(other.age < claim.age for other in running)
            return PAUSED if running and is_youngest and too_much else RUNNING
        held = claim.used + sum(other.used for other in others)
        if others and held > self._budget and all(other.age < claim.age for other in paused):
            return MUST_RESTART
        is_next = all(claim.age < other.age for other in paused)
        fits = not running or self._is_room([claim.running(), *others])
        return RUNNING if is_next and fits else PAUSED

    def _admit(self, claim: MemoryReservation, threads: int) -> bool:
        with _LockedReservations(self._path) as table:
            others = [other for other in table.claims if other.pid != claim.pid]
            self.threads = self._room(claim, others, threads)
            if self.threads:
                # The age counts from the start: the unit that started last is paused first.
                claim.state, claim.since = RUNNING, time.time()
                claim.threads = self.threads
            table.claims = [*others, claim]
        return claim.state == RUNNING

    def _room(self, claim: MemoryReservation, others: list[MemoryReservation], threads: int) -> int:
        """Number of threads that fit; 0 if not even one does."""
        holding = [other for other in others if other.state != WAITING]
        if not holding:
            # Nothing will free memory, so a unit that needs more than the whole budget starts as
            # well.
            return self._threads_beside([], claim, threads) or 1
        # Memory is short already.
        if any(other.state == PAUSED for other in holding):
            return 0
        now = time.time()
        overtaken = any(
            other.state == WAITING
            and other.since < claim.since
            and now - other.since > _OVERTAKING_SECONDS
            for other in others
        )
        return 0 if overtaken else self._threads_beside(holding, claim, threads)

    def _threads_beside(
        self, holding: list[MemoryReservation], claim: MemoryReservation, threads: int
    ) -> int:
        counts = range(threads, 0, -1)
        return next((n for n in counts if self._is_room([*holding, claim.running(n)])), 0)

    def _is_room(self, claims: list[MemoryReservation]) -> bool:
        """True if the claims fit the budget; a paused unit keeps the memory that it holds."""
        running = [claim for claim in claims if claim.state == RUNNING]
        paused = sum(claim.used for claim in claims if claim.state == PAUSED)
        heaviest = sorted((each for claim in running for each in claim.processes), reverse=True)
        # At most `jobs` processes run at a time, so the heaviest of them are the worst case.
        expected = max(sum(heaviest[: self._jobs or None]), sum(claim.used for claim in running))
        return paused + expected <= self._budget


class _LockedReservations:
    """The ledger's lines while only this process may change them; dead processes are left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.claims: list[MemoryReservation] = []

    def __enter__(self) -> _LockedReservations:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        text = os.read(self._handle, 1 << 20).decode("utf-8", "replace")
        self.claims = [claim for claim in _parse_reservations(text) if _is_alive(claim.pid)]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.truncate(self._handle, 0)
            os.write(self._handle, "\n".join(map(str, self.claims)).encode())
        finally:
            os.close(self._handle)


def _parse_reservations(text: str) -> Iterator[MemoryReservation]:
    """Parse the lines of claims; a line that a full disk cut off is ignored."""
    for line in text.splitlines():
        try:
            pid, state, weight, since, used, threads = line.split(" ")
            numbers = [int(word) for word in (pid, weight, used, threads)]
            claim = MemoryReservation(
                numbers[0], state, numbers[1], float(since), numbers[2], threads=numbers[3]
            )
        except ValueError:
            continue
        if min(numbers) >= 0 and max(numbers) < _HUGE:
            yield claim


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


class MemoryGovernor:
    """Called several times a second while a compiler runs."""

    def __init__(self, ledger: MemoryReservations) -> None:
        self._ledger = ledger
        self._tree = ProcessTree(0)
        self._halted = 0.0
        self.used = 0
        """Largest memory that was seen, in MiB."""
        self.paused = 0.0
        """Seconds for which the unit was paused."""
        self.gave_way = False
        """True if the unit was killed to free memory for others, and must be started again."""
        self.trouble = ""
        """Error of the ledger; the unit then runs without supervision."""

    def look(self, pid: int) -> None:
        """Measure the memory of the compiler `pid`, and follow the ledger's advice."""
        if self.trouble or self.gave_way:
            return
        self._tree = ProcessTree(pid)
        held = self._tree.memory()
        self.used = max(self.used, held)
        try:
            advice = self._ledger.advise(held)
            if advice == MUST_RESTART:
                self.gave_way = True
                self._tree.send(_signal.SIGKILL)
                self._go_on()
            elif advice == PAUSED:
                if not self._halted:
                    # A stopped compiler does not react to Ctrl-C: from now on, `_end` passes
                    # signals on.
                    self._halted = time.time()
                    for number in _ENDING:
                        _signal.signal(number, self._end)
                # Sent at each look, because a stopped tree may have new processes.
                self._tree.send(_signal.SIGSTOP)
            else:
                self._go_on()
        except (OSError, ValueError) as error:
            self.trouble = str(error)
            self._go_on()

    def _go_on(self) -> None:
        if self._halted:
            self.paused += time.time() - self._halted
            self._halted = 0.0
            self._tree.send(_signal.SIGCONT)
            for number in _ENDING:
                _signal.signal(number, _signal.SIG_DFL)

    def _end(self, number: int, _: object) -> None:
        """Pass a signal to the stopped compiler, let it continue and die; then end this process."""
        self._tree.send(number)
        self._go_on()
        os.kill(os.getpid(), number)

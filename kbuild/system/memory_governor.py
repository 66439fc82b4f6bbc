"""The memory budget of all units of a run.

Reservations in a locked file, and ending a compiler that has outgrown its own while memory is
short.

Runs once per translation unit without `site`: imports next to nothing.
"""

from __future__ import annotations

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
RUNNING, WAITING = "r", "w"
_SIGKILL = 9  # `signal` itself loads enum


class MemoryReservation:
    """The line of one unit: state, MiB per thread, start of its wait or run, MiB used, threads."""

    def __init__(
        self, pid: int, state: str, weight: int, since: float, used: int = 0, *, threads: int = 1
    ) -> None:
        self.pid, self.state, self.weight = pid, state, weight
        self.since, self.used, self.threads = since, used, threads

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.weight} {self.since:.3f} {self.used} {self.threads}"

    def running(self, threads: int) -> MemoryReservation:
        """The claim in the state RUNNING, with so many threads."""
        return MemoryReservation(
            self.pid, RUNNING, self.weight, self.since, self.used, threads=threads
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
                # A claim that stays would hold up younger ones as long as this process lives.
                self.release()
                return None
            time.sleep(pause)
            pause = next(pauses, pause)
        return time.time() - began

    def release(self) -> None:
        """Release the process's reservation."""
        with _LockedReservations(self._path) as table:
            table.claims = [claim for claim in table.claims if claim.pid != self._pid]

    def must_give_way(self, used: int) -> bool:
        """Record that the process's unit holds `used` MiB; True when it has to free them.

        The youngest unit gives way when all together hold more than the budget. The oldest always
        stays, so that the build goes on.
        """
        with _LockedReservations(self._path) as table:
            running = [claim for claim in table.claims if claim.state == RUNNING]
            own = next((claim for claim in running if claim.pid == self._pid), None)
            if own is None:
                return False
            own.used = used
            others = [claim for claim in running if claim is not own]
            held = sum(claim.used for claim in running)
            gives_way = (
                bool(others)
                and held > self._budget
                and all(other.age < own.age for other in others)
            )
            if gives_way:  # others may start at once: the memory is free in a moment
                table.claims.remove(own)
        return gives_way

    def _admit(self, claim: MemoryReservation, threads: int) -> bool:
        with _LockedReservations(self._path) as table:
            others = [other for other in table.claims if other.pid != claim.pid]
            self.threads = self._room(claim, others, threads)
            if self.threads:
                # The age counts from the start: the unit that started last gives way first.
                claim.state, claim.since = RUNNING, time.time()
                claim.threads = self.threads
            table.claims = [*others, claim]
        return claim.state == RUNNING

    def _room(self, claim: MemoryReservation, others: list[MemoryReservation], threads: int) -> int:
        """Number of threads that fit; 0 if not even one does."""
        running = [other for other in others if other.state == RUNNING]
        if not running:
            # Nothing will free memory, so a unit that needs more than the whole budget starts as
            # well.
            return self._threads_beside([], claim, threads) or 1
        now = time.time()
        overtaken = any(
            other.state == WAITING
            and other.since < claim.since
            and now - other.since > _OVERTAKING_SECONDS
            for other in others
        )
        return 0 if overtaken else self._threads_beside(running, claim, threads)

    def _threads_beside(
        self, running: list[MemoryReservation], claim: MemoryReservation, threads: int
    ) -> int:
        counts = range(threads, 0, -1)
        return next((n for n in counts if self._is_room([*running, claim.running(n)])), 0)

    def _is_room(self, running: list[MemoryReservation]) -> bool:
        """True if running units fit the budget."""
        heaviest = sorted((each for claim in running for each in claim.processes), reverse=True)
        # At most `jobs` processes run at a time, so the heaviest of them are the worst case.
        expected = max(sum(heaviest[: self._jobs or None]), sum(claim.used for claim in running))
        return expected <= self._budget


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


class MemoryGovernor:
    """Called several times a second while a compiler runs."""

    def __init__(self, reservations: MemoryReservations) -> None:
        self._reservations = reservations
        self.used = 0
        """Largest memory that was seen, in MiB."""
        self.gave_way = False
        """True if the unit was killed to free memory for others, and must be started again."""
        self.trouble = ""
        """Error of the ledger; the unit then runs without supervision."""

    def look(self, pid: int) -> None:
        """Measure the memory of the compiler `pid`, and end it when it has to give way."""
        if self.trouble or self.gave_way:
            return
        tree = ProcessTree(pid)
        held = tree.memory()
        self.used = max(self.used, held)
        try:
            self.gave_way = self._reservations.must_give_way(held)
        except (OSError, ValueError) as error:
            self.trouble = str(error)
        # Not SIGTERM: a compiler driver would wait for its own compilers, which hold the memory.
        if self.gave_way:
            tree.send(_SIGKILL)

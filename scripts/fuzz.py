"""Feeds damaged and hostile input to every reader of foreign bytes; see `fuzzing/targets.py`.

    python scripts/fuzz.py --seconds 60 --seed 7
    python scripts/fuzz.py --executions 1000000 --jobs 2 --save
    python scripts/fuzz.py --target metadata --seed 7 --number 1234     one case again
    python scripts/fuzz.py --target metadata --file case.json

An input follows from the seed, the target and a number alone, whatever runs beside it. A fault is
an error that is not kbuild's own, more than 5 seconds, more than 1 GB, or an allocation that the
input's size does not justify. Nothing but kbuild and its test helpers is needed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from random import Random
from types import FrameType, TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from fuzzing.common import Target  # noqa: E402
from fuzzing.mutations import mutate_bytes  # noqa: E402
from fuzzing.targets import TARGETS  # noqa: E402

from kbuild.system.errors import KbuildError  # noqa: E402

LIMIT_SECONDS = 5
"""Processor seconds of one run; twelve times as long if it only waits."""
LIMIT_BYTES = 1 << 30
_ADDRESS_SPACE = 4 << 30
"""Beyond what the process has when it starts: an allocation that fails is seen as `MemoryError`."""
_BATCH = 700
_MEMORY_ALLOWED = ("python", "version.py", "build.toml", "build.toml-rules", "pip-settings")
"""Python's own parser says `MemoryError` when a source is nested too deeply."""


class _Hang(BaseException):
    """An execution took too long; no reader catches it."""


@dataclass(frozen=True)
class Fault:
    """One way in which a reader failed, and the first input that shows it."""

    target: str
    what: str
    """The error's class, `hang` or `memory`."""
    place: str
    """The last line of kbuild's in the traceback."""
    words: str
    number: int


@dataclass
class Tally:
    """What became of some executions."""

    executions: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Of them: those that ended with an error of kbuild's own."""
    seconds: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    faults: dict[tuple[str, str, str], Fault] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    """Bytes."""

    def add(self, other: Tally) -> None:
        """Take in what another process did."""
        for name in ("executions", "refused", "seconds", "failures"):
            getattr(self, name).update(getattr(other, name))
        for name, seconds in other.slowest.items():
            self.slowest[name] = max(seconds, self.slowest.get(name, 0.0))
        for key, fault in other.faults.items():
            self.faults.setdefault(key, fault)
        self.peak = max(self.peak, other.peak)


def input_of(target: Target, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """The input of that number: the seeds themselves first, then changed ones."""
    if number < len(seeds):
        return seeds[number]
    random = Random(f"{seed}/{target.name}/{number}")  # noqa: S311 - not for secrets
    data = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2))):
        try:
            data = random.choice(target.mutations)(data, seeds, random)
        except (ValueError, RecursionError):  # the form is lost already
            data = mutate_bytes(data, seeds, random)
    return data


class TargetRunner:
    """Runs targets in this process, each execution in a folder of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.seeds: dict[str, Sequence[bytes]] = {}
        self.tally = Tally()
        self.place: Path | None = None
        self.places = 0

    def run(self, target: Target, number: int, data: bytes | None = None) -> None:
        """One execution; `data` instead of the input of that number."""
        if target.name not in self.seeds:
            self.seeds[target.name] = list(target.seeds())
            _expect(self.seeds[target.name], target)
        if data is None:
            data = input_of(target, self.seeds[target.name], self.seed, number)
        place = self._place()
        before = time.perf_counter()
        try:
            self._guarded(target, number, data, place)
        finally:
            spent = time.perf_counter() - before
        tally = self.tally
        tally.executions[target.name] += 1
        tally.seconds[target.name] += spent  # type: ignore[assignment]
        tally.slowest[target.name] = max(spent, tally.slowest.get(target.name, 0.0))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if peak > LIMIT_BYTES > tally.peak:
            self._fault(target, number, "memory", "", f"{peak >> 20} MiB resident")
        tally.peak = max(tally.peak, peak)

    def _place(self) -> Path:
        """An empty folder that no file was in before: readers remember files by path and time."""
        if self.place is None or any(self.place.iterdir()):
            if self.place is not None:
                shutil.rmtree(self.place, ignore_errors=True)
            self.places += 1
            self.place = self.folder / str(self.places)
            self.place.mkdir()
        return self.place

    def _guarded(self, target: Target, number: int, data: bytes, place: Path) -> None:
        _limit(LIMIT_SECONDS)
        try:
            target.run(data, place)
        except _Hang as hang:
            self._fault(target, number, "hang", _last_line(hang.__traceback__), "")
        except (KbuildError, *target.raises) as error:
            self.tally.refused[target.name] += 1
            if _wanted_memory(error) and target.name not in _MEMORY_ALLOWED:
                self._fault(target, number, "memory", _last_line(error.__traceback__), str(error))
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            words = str(error)[:200].encode("ascii", "backslashreplace").decode()
            line = _last_line(error.__traceback__)
            self._fault(target, number, type(error).__name__, line, words)
        finally:
            _limit(0)

    def _fault(self, target: Target, number: int, what: str, line: str, words: str) -> None:
        fault = Fault(target.name, what, line, words, number)
        self.tally.failures[target.name] += 1
        self.tally.faults.setdefault((target.name, what, line), fault)


def _expect(seeds: Sequence[bytes], target: Target) -> None:
    if not seeds:
        raise SystemExit(f"{target.name} has no inputs to start from")


def _wanted_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _last_line(found: TracebackType | None) -> str:
    """`kbuild/system/store.py:82`: where kbuild was."""
    lines = [
        f"{Path(frame.f_code.co_filename).relative_to(HERE.parent)}:{line}"
        for frame, line in traceback.walk_tb(found)
        if "/kbuild/" in frame.f_code.co_filename
        and Path(frame.f_code.co_filename).is_relative_to(HERE.parent)
        and ".venv" not in frame.f_code.co_filename
    ]
    return lines[-1] if lines else "outside of kbuild"


def _limit(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 12 * seconds)


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise _Hang


def _work(jobs: multiprocessing.Queue[Any], answers: multiprocessing.Queue[Any], seed: int) -> None:
    """A worker: batches of (target, first number, count) until there are none."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _ring)
    by_name = {target.name: target for target in TARGETS}
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - made by mkdtemp
    folder = Path(tempfile.mkdtemp(prefix="kbuild-fuzz-", dir=base))
    os.chdir(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ADDRESS_SPACE, resource.RLIM_INFINITY))
    try:
        bench = TargetRunner(folder, seed)
        for name, first, count in iter(jobs.get, None):
            bench.tally = Tally()
            for number in range(first, first + count):
                bench.run(by_name[name], number)
            answers.put(bench.tally)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        answers.put(None)


def _batches(targets: Sequence[Target], executions: int) -> Iterator[tuple[str, int, int]]:
    """Small batches of every target in turn, so that a run that is cut short saw all of them."""
    whole = sum(target.share for target in targets)
    rest = {t.name: max(1, round(executions * t.share / whole)) for t in targets}
    first = dict.fromkeys(rest, 0)
    rounds = max(1, -(-max(rest.values()) // _BATCH))
    step = {name: -(-count // rounds) for name, count in rest.items()}
    while any(rest.values()):
        for name, left in rest.items():
            if count := min(step[name], left):
                yield name, first[name], count
                first[name] += count
                rest[name] -= count


def fuzz(targets: Sequence[Target], seed: int, executions: int, seconds: float, jobs: int) -> Tally:
    """Run until the executions are done or the time is over."""
    context = multiprocessing.get_context("spawn")
    waiting, answers = context.Queue(2 * jobs), context.Queue()
    workers = [
        context.Process(target=_work, args=(waiting, answers, seed), daemon=True)
        for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    tally, end = Tally(), time.monotonic() + seconds
    for batch in _batches(targets, executions):
        while waiting.full() and time.monotonic() < end:
            _refuse_dead(workers)
            time.sleep(0.01)
        if time.monotonic() > end:
            break
        waiting.put(batch)
        while not answers.empty():
            answer = answers.get()
            if answer is None:
                raise SystemExit("a worker has ended with the error above")
            tally.add(answer)
    for _ in workers:
        waiting.put(None)
    for answer in _until_ended(answers, workers):
        tally.add(answer)
    return tally


def _until_ended(
    answers: multiprocessing.Queue[Any], workers: Sequence[BaseProcess]
) -> Iterator[Tally]:
    """What is still said; every worker says None last."""
    living = len(workers)
    while living:
        try:
            answer = answers.get(timeout=1)
        except Empty:
            _refuse_dead(workers)
            continue
        if answer is None:
            living -= 1
        else:
            yield answer


def _refuse_dead(workers: Sequence[BaseProcess]) -> None:
    """A worker that the system killed leaves no word."""
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker has died")


def _report(tally: Tally, elapsed: float) -> None:
    for name, count in sorted(tally.executions.items()):
        rate = count / max(tally.seconds[name], 1e-9)
        words = f"{count:>9,}  {tally.refused[name]:>9,} refused  {rate:>8,.0f}/s"
        print(f"{name:<18}{words}  slowest {tally.slowest[name]:.2f} s  {tally.failures[name]}")
    for fault in sorted(tally.faults.values(), key=lambda fault: (fault.target, fault.place)):
        print(f"FAULT {fault.target} {fault.what} at {fault.place} (--number {fault.number})")
        print(f"      {fault.words}")
    total = sum(tally.executions.values())
    words = f"{total:,} executions in {elapsed:.0f} s, peak {tally.peak >> 20} MiB"
    print(f"{words}, {len(tally.faults)} distinct faults")


def _save(tally: Tally, elapsed: float) -> None:
    sys.path.insert(0, str(HERE.parent / "benchmarks"))
    from report import RESULTS, machine

    record = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "command": f"python scripts/fuzz.py {' '.join(sys.argv[1:])}",
        "seconds": round(elapsed),
        "executions": sum(tally.executions.values()),
        "errors_not_kbuilds_own": sum(
            1 for fault in tally.faults.values() if fault.what not in {"hang", "memory"}
        ),
        "hangs": sum(1 for fault in tally.faults.values() if fault.what == "hang"),
        "peak_mib": tally.peak >> 20,
        "faults": [asdict(fault) for fault in tally.faults.values()],
        "targets": [
            {
                "name": name,
                "executions": count,
                "refused": tally.refused[name],
                "seconds": round(float(tally.seconds[name]), 1),
                "slowest": round(tally.slowest[name], 3),
            }
            for name, count in sorted(tally.executions.items())
        ],
    }
    (RESULTS / "fuzz.json").write_text(json.dumps(record, indent=1) + "\n")


def _again(target: Target, arguments: argparse.Namespace) -> int:
    """One case in this process, with the whole traceback."""
    data = arguments.file.read_bytes() if arguments.file else None
    if data is None:
        data = input_of(target, list(target.seeds()), arguments.seed, arguments.number)
    print(f"{len(data)} bytes: {data[:400]!r}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(repr(target.run(data, Path(folder)))[:400])
        except (KbuildError, *target.raises) as error:
            print(f"refused: {error}")
    return 0


def main() -> int:
    """Returns 1 when there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = sorted(target.name for target in TARGETS)
    parser.add_argument("--target", action="append", choices=names, help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executions", type=int, default=10**9, help="of all targets together")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--number", type=int, help="run this one case of --target again")
    parser.add_argument("--file", type=Path, help="run this input of --target again")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fuzz.json")
    arguments = parser.parse_args()
    targets = [t for t in TARGETS if not arguments.target or t.name in arguments.target]
    if arguments.number is not None or arguments.file:
        return _again(targets[0], arguments)
    if arguments.executions == 10**9 and arguments.seconds == float("inf"):
        arguments.seconds = 60.0
    began = time.monotonic()
    tally = fuzz(targets, arguments.seed, arguments.executions, arguments.seconds, arguments.jobs)
    elapsed = time.monotonic() - began
    _report(tally, elapsed)
    if arguments.save:
        _save(tally, elapsed)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())

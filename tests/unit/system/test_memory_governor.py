"""Units that need more memory than they were taken to need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbuild.system.memory_governor import MemoryReservations, ProcessTree
from tests.support.unit_launches import Process, UnitRun

BUDGET = 650
UNITS = range(4)
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
pytestmark = linux


def used_at_most(processes: list[Process]) -> int:
    """MiB that all launchers and compilers held at the same time, sampled until they end."""
    most = 0
    while any(process.poll() is None for process in processes):
        most = max(most, sum(ProcessTree(process.pid).memory() for process in processes))
        time.sleep(0.02)
    return most


def all_at_once(bench: UnitRun, text: str) -> list[Process]:
    for number in UNITS:
        bench.write(f"{number}.cpp", f"{text}\nunit {number}\n")
    return [bench.start(*bench.command(f"{number}.cpp")) for number in UNITS]


@pytest.mark.full
def test_units_that_outgrow_their_weights_keep_to_the_budget(tmp_path: Path) -> None:
    bench = UnitRun(tmp_path, memory=BUDGET)
    for process in all_at_once(bench, "small"):
        process.communicate(timeout=30)
    (tmp_path / "run" / "units.jsonl").unlink()
    processes = all_at_once(bench, "//! grow 300")  # 1200 MiB together
    most = used_at_most(processes)
    said = [process.communicate()[1] for process in processes]
    assert {process.returncode for process in processes} == {0}, said
    units = bench.log.units
    assert all(unit.weight < 100 or unit.restarts for unit in units)
    assert most <= BUDGET + 150  # the launchers themselves, and a quarter of a second
    assert sum(unit.restarts for unit in units) > 0
    assert all(300 < unit.peak < 350 for unit in units)


def ledger(folder: Path, *others: tuple[str, int, float, int]) -> MemoryReservations:
    """State, weight, age and MiB in use of other processes.

    This process runs with a weight of 10 and is 5 seconds old.
    """
    now = time.time()
    living = (1, os.getppid())
    lines = [
        f"{pid} {state} {weight} {now - age} {used} 1"
        for pid, (state, weight, age, used) in zip(living, others, strict=False)
    ]
    (folder / "ledger").write_text("\n".join([*lines, f"{os.getpid()} r 10 {now - 5} 0 1"]))
    return MemoryReservations(str(folder / "ledger"), 100)


@pytest.mark.parametrize(
    ("others", "used", "gives_way"),
    [
        ([("r", 40, 9, 30)], 70, False),
        ([("r", 40, 9, 30)], 71, True),
        ([("r", 40, 9, 90)], 11, True),  # because an older one needs it
        ([("r", 40, 2, 30)], 71, False),  # a younger one is to
        ([("r", 40, 9, 30), ("r", 40, 2, 30)], 71, False),
        ([("w", 90, 9, 0)], 101, False),  # nobody else runs
    ],
)
def test_which_unit_gives_way(
    tmp_path: Path, others: list[tuple[str, int, float, int]], used: int, gives_way: bool
) -> None:
    reservations = ledger(tmp_path, *others)
    assert reservations.must_give_way(used) is gives_way
    left = (tmp_path / "ledger").read_text()
    assert (f"{os.getpid()} r 10 " in left) is not gives_way


def test_what_a_unit_really_holds_keeps_others_out(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text(f"{os.getppid()} r 10 1.0 80 1")
    until = time.time() + 0.3
    assert (
        MemoryReservations(str(tmp_path / "ledger"), 100).take(9, lambda: time.time() > until)
        is None
    )


SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
THREADED = f"""
import subprocess, sys, threading

command = [sys.executable, "-c", {SLEEPS!r}]
threading.Thread(target=lambda: subprocess.run(command)).start()
"""


def test_processes_that_other_threads_started_belong_to_the_tree() -> None:
    command = (sys.executable, "-c", THREADED)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: TID251
        assert process.stdout is not None
        child = int(process.stdout.readline())
        alone = ProcessTree(child).memory()
        assert ProcessTree(process.pid).memory() >= alone > 0
        ProcessTree(process.pid).send(signal.SIGKILL)
    until = time.time() + 10
    while state_of(child) not in ("Z", "gone") and time.time() < until:
        time.sleep(0.02)
    assert state_of(child) in ("Z", "gone")


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"

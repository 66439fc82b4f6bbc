"""Units that need more memory than they were taken to need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbuild.system.memory_governor import (
    MUST_RESTART,
    PAUSED,
    RUNNING,
    MemoryReservations,
    ProcessTree,
)
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
    assert max(unit.paused for unit in units) > 0.5
    assert all(300 < unit.peak < 350 for unit in units)


def ledger(folder: Path, *others: tuple[str, int, float, int], own: str) -> MemoryReservations:
    """State, weight, age and MiB in use of other processes, and the state of this one.

    This process has a weight of 10 and is 5 seconds old.
    """
    now = time.time()
    living = (1, os.getppid())
    lines = [
        f"{pid} {state} {weight} {now - age} {used} 1"
        for pid, (state, weight, age, used) in zip(living, others, strict=False)
    ]
    (folder / "ledger").write_text("\n".join([*lines, f"{os.getpid()} {own} 10 {now - 5} 0 1"]))
    return MemoryReservations(str(folder / "ledger"), 100)


@pytest.mark.parametrize(
    ("others", "own", "used", "advice"),
    [
        ([("r", 40, 9, 30)], "r", 10, RUNNING),
        ([("r", 40, 9, 30)], "r", 50, PAUSED),  # 40 + 1.25 * 50
        ([("r", 40, 9, 70)], "r", 20, PAUSED),  # what an older one needs
        ([("r", 40, 2, 30)], "r", 50, RUNNING),  # a younger one is to pause
        ([("p", 40, 9, 70)], "r", 90, RUNNING),  # who runs alone goes on
        ([("w", 90, 9, 0)], "r", 90, RUNNING),
        ([("r", 40, 9, 30)], "p", 40, RUNNING),
        ([("r", 40, 9, 30)], "p", 50, PAUSED),
        ([("r", 40, 9, 10), ("p", 9, 6, 9)], "p", 9, PAUSED),  # an older one is next
        ([("p", 40, 2, 60)], "p", 60, RUNNING),  # somebody has to
        ([("r", 40, 9, 70)], "p", 40, MUST_RESTART),
        ([("r", 40, 9, 70), ("p", 9, 2, 9)], "p", 40, PAUSED),  # a younger one gives way
    ],
)
def test_who_pauses(
    tmp_path: Path, others: list[tuple[str, int, float, int]], own: str, used: int, advice: str
) -> None:
    book = ledger(tmp_path, *others, own=own)
    assert book.advise(used) == advice
    assert (
        f"{os.getpid()} {'p' if advice in {PAUSED, MUST_RESTART} else 'r'} 10 "
        in (tmp_path / "ledger").read_text()
    )


def test_nothing_starts_beside_units_that_wait_in_mid_air(tmp_path: Path) -> None:
    line = f"{os.getppid()} {{}} 10 1.0 10 1"
    for state, expected in (("r", True), ("p", False)):
        (tmp_path / "ledger").write_text(line.format(state))
        until = time.time() + 0.3
        took = MemoryReservations(str(tmp_path / "ledger"), 100).take(
            9, lambda end=until: time.time() > end
        )
        assert (took is not None) is expected


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


def halted(bench: UnitRun) -> tuple[Process, int]:
    """A launcher whose compiler is halted for an older unit; and the compiler."""
    bench.write("a.cpp", "//! sleep 30\n")
    process = bench.start(*bench.command("a.cpp"))
    path = bench.root / "run" / "ledger"
    while bench.starts == 0:
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    with path.open("a") as file:
        file.write(f"\n{os.getpid()} r 1 1.0 {bench.memory} 1")
    compiler = int(children.split()[0])
    until = time.time() + 10
    while state_of(compiler) != "T" and time.time() < until:
        time.sleep(0.02)
    assert state_of(compiler) == "T"
    return process, compiler


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_halted_compiler_dies_with_its_launcher(tmp_path: Path, number: signal.Signals) -> None:
    process, compiler = halted(UnitRun(tmp_path))
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == -number
    until = time.time() + 5
    while state_of(compiler) not in {"gone", "Z"} and time.time() < until:
        time.sleep(0.02)
    assert state_of(compiler) in {"gone", "Z"}

"""Memory: the budget, the ledger and what becomes of a unit that the system kills."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.build.unit_log import UnitRecord
from kbuild.system.budget import available_memory, cgroup_headroom, memory_budget
from kbuild.system.memory_governor import MemoryReservations
from tests.support.unit_launches import UnitRun


def most_at_once(units: tuple[UnitRecord, ...], cost: Callable[[UnitRecord], float]) -> float:
    changes = [(unit.start, cost(unit)) for unit in units]
    changes += [(unit.end, -cost(unit)) for unit in units]
    total = most = 0.0
    for _, change in sorted(changes):
        total += change
        most = max(most, total)
    return most


@pytest.mark.full
def test_six_hungry_units_keep_to_the_budget(tmp_path: Path) -> None:
    bench = UnitRun(tmp_path, memory=750)
    for number in range(6):
        bench.write(f"{number}.cpp", f"//! allocate 300\nunit {number}\n")
    compile_all(bench, range(6))  # weights are not known: one at a time
    assert most_at_once(bench.log.units, lambda _: 1) == 1
    assert all(290 < unit.peak < 340 for unit in bench.log.units)
    (bench.root / "run" / "units.jsonl").unlink()
    for number in range(6):
        bench.write(f"{number}.cpp", f"//! allocate 300\nunit {number}, edited\n")
    compile_all(bench, range(6))  # now they are
    assert most_at_once(bench.log.units, lambda _: 1) == 2
    assert most_at_once(bench.log.units, lambda unit: unit.peak) <= 750
    assert max(unit.waited for unit in bench.log.units) > 0.5


def compile_all(bench: UnitRun, numbers: range) -> None:
    running = [bench.start(*bench.command(f"{number}.cpp")) for number in numbers]
    for process in running:
        process.communicate(timeout=60)
    assert {process.returncode for process in running} == {0}


def test_a_killed_unit_is_retried_alone_and_that_is_said(tmp_path: Path) -> None:
    bench = UnitRun(tmp_path)
    bench.write("a.cpp", f"//! allocate 40\n//! die-once {tmp_path}/died\n")
    said = bench.compile("a.cpp")
    assert "kbuild: the system killed the compiler of a.cpp (peak 0." in said
    (unit,) = bench.log.units
    assert "it was retried alone" in unit.killed
    assert (unit.status, unit.cache, bench.starts) == (0, "miss", 2)
    assert unit.weight == bench.memory


def test_time_over_means_no_new_unit_but_hits_are_served(tmp_path: Path) -> None:
    bench = UnitRun(tmp_path)
    bench.write("a.cpp", "a\n")
    bench.compile("a.cpp")
    late = replace(bench, deadline=time.time() - 1)
    late.compile("a.cpp")
    late.write("b.cpp", "b\n")
    said = late.compile("b.cpp", expect=75)
    assert said == "kbuild: not started, the time budget is over\n"
    assert bench.outcomes == ["miss", "hit"]


def test_the_dead_hold_nothing(tmp_path: Path) -> None:
    child = subprocess.run((sys.executable, "-c", ""), check=True)  # noqa: TID251
    assert child.returncode == 0
    gone = 2**22 - 1
    (tmp_path / "ledger").write_text(f"{gone} r 100000 1.0 0 1")
    assert MemoryReservations(str(tmp_path / "ledger"), 100).take(50, lambda: False) is not None


def test_a_light_unit_overtakes_but_not_forever(tmp_path: Path) -> None:
    path, now, me = tmp_path / "ledger", time.time(), os.getppid()
    for since, expected in ((now - 1, True), (now - 60, False)):
        path.write_text(f"{me} r 60 {now - 90} 0 1\n1 w 90 {since} 0 1")
        until = time.time() + 0.4
        took = MemoryReservations(str(path), 100).take(30, lambda until=until: time.time() > until)
        assert (took is not None) is expected


def test_the_end_of_one_lets_the_next_in(tmp_path: Path) -> None:
    ledger = MemoryReservations(str(tmp_path / "ledger"), 100)
    holder = subprocess.Popen(("sleep", "0.4"))  # noqa: TID251
    (tmp_path / "ledger").write_text(f"{holder.pid} r 80 1.0 0 1")
    threading.Thread(target=holder.wait).start()
    assert ledger.take(50, lambda: False) is not None
    assert holder.poll() == 0
    ledger.release()
    assert (tmp_path / "ledger").read_text() == ""


@pytest.mark.parametrize(
    ("budget", "jobs", "beside", "threads"),
    [
        (10000, 2, "", 2),  # two of 3000
        (10000, 8, "", 3),  # a fourth would not fit
        (5000, 8, "", 1),
        (100, 8, "", 1),  # runs alone, and only once
        (10000, 8, "r 4000 1.0 0 1", 2),  # 4000 + 2 x 3000
        (10000, 2, "r 4000 1.0 0 4", 2),  # no more than two processes run: 4000 + 4000
        (8000, 3, "r 3000 1.0 0 2", None),  # 3 x 3000
        (9000, 3, "r 3000 1.0 0 2", 3),
        (10000, 0, "r 3000 1.0 0 2", 1),  # nobody keeps count: all of them
    ],
)
def test_each_thread_counts_up_to_the_number_of_processes(
    tmp_path: Path, budget: int, jobs: int, beside: str, threads: int | None
) -> None:
    if beside:
        (tmp_path / "ledger").write_text(f"{os.getppid()} {beside}")
    ledger = MemoryReservations(str(tmp_path / "ledger"), budget, jobs)
    until = time.time() + 0.3
    took = ledger.take(3000, lambda: time.time() > until, threads=min(10, jobs) or 1)
    assert (took is None) == (threads is None)
    if threads:
        assert ledger.threads == threads


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal: 33554432 kB\nMemFree: 1024 kB\nMemAvailable: 20971520 kB\n"


def test_the_budget_is_what_is_free(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, {"proc/meminfo": MEMINFO})) == 20480
    assert memory_budget(tmp_path) == 18432


def test_control_groups_of_version_2_with_their_parents(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/job/step\n",
        "sys/fs/cgroup/job/memory.max": f"{8 << 30}\n",
        "sys/fs/cgroup/job/memory.current": f"{3 << 30}\n",
        "sys/fs/cgroup/job/memory.stat": f"anon 5\ninactive_file {1 << 30}\n",
        "sys/fs/cgroup/job/step/memory.max": "max\n",
    }
    assert list(cgroup_headroom(machine(tmp_path, files))) == [6144]
    assert memory_budget(tmp_path) == int(6144 * 0.9)


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "9:cpu:/\n4:memory:/box\n0::/\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 << 30}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{1 << 30}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert min(cgroup_headroom(machine(tmp_path, files))) == 3072

"""What a unit reads may be edited while it waits, is looked up, or is compiled."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.build.unit import EXIT_INPUTS_CHANGED
from kbuild.build.unit.inputs import read_recorded_inputs
from kbuild.system.cache import OBJECTS, Cache
from tests.support.unit_launches import UnitRun

OLD = "x is 1\n"
NEW = "x is 2\n"
# Each is done once, while the source is compiled: of the same size, with the time of the old file.
EDITS = {
    "save": "test -f done || { touch done; cat new.h > include/x.h; }",
    "mv": "test -f done || { touch done; mv new.h include/x.h; }",
    "cp -p": "test -f done || { touch done; cp -p new.h include/x.h; }",
    "link": "test -f done || { touch done; ln -s ../new.h link; mv -T link include/x.h; }",
    "folder": "test -f done || { touch done; mv include gone; mv other include; }",
}


@pytest.fixture
def bench(tmp_path: Path) -> UnitRun:
    bench = UnitRun(tmp_path)
    bench.write("a.cpp", '#include "x.h"\n')
    bench.write("include/x.h", OLD)
    bench.write("new.h", NEW)
    bench.write("other/x.h", NEW)
    time.sleep(0.02)  # a tick of the clock that files are dated by
    return bench


def include(bench: UnitRun) -> str:
    return f"-I{bench.project / 'include'}"


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def entries(bench: UnitRun) -> list[str]:
    return [entry.key for entry in Cache(bench.root / "cache", OBJECTS).entries()]


@pytest.mark.parametrize("edit", EDITS)
def test_a_header_that_is_edited_meanwhile_is_compiled_again(bench: UnitRun, edit: str) -> None:
    bench.write("a.cpp", f'//! run {EDITS[edit]}\n#include "x.h"\n')
    time.sleep(0.02)
    bench.compile("a.cpp", include(bench))
    assert bench.starts == 2
    assert bench.object_of("a.cpp").endswith(NEW)
    assert bench.log.units[0].changed == str(bench.project / "include/x.h")
    bench.forget_objects()
    bench.compile("a.cpp", include(bench))
    assert bench.outcomes == ["miss", "hit"]
    assert bench.object_of("a.cpp").endswith(NEW)


@pytest.mark.parametrize("edit", EDITS)
def test_a_header_that_was_known_is_compared(bench: UnitRun, edit: str) -> None:
    bench.compile("a.cpp", include(bench))
    bench.write("a.cpp", f'//! run {EDITS[edit]}\n#include "x.h"\n')
    bench.compile("a.cpp", include(bench))
    assert bench.starts == 3
    assert bench.object_of("a.cpp").endswith(NEW)


def test_what_was_put_back_was_another_file_meanwhile(bench: UnitRun) -> None:
    bench.compile("a.cpp", include(bench))
    put_back = "cp include/x.h old.h; cat new.h > include/x.h; sleep 0.02; cat old.h > include/x.h"
    once = f"test -f done || {{ touch done; {put_back}; }}"
    bench.write("a.cpp", f'//! run {once}\n#include "x.h"\n')
    bench.compile("a.cpp", include(bench))
    assert bench.starts == 3


@pytest.mark.parametrize("file", ["include/x.h", "a.cpp"])
def test_a_file_that_does_not_rest_is_named(bench: UnitRun, file: str) -> None:
    bench.write("a.cpp", f'//! run cp {file} z; cat z > {file}\n#include "x.h"\n')
    said = bench.compile("a.cpp", include(bench), expect=EXIT_INPUTS_CHANGED)
    assert said == f"kbuild: error: `{file}` changed each time that a.cpp was compiled\n"
    assert bench.starts == 2
    assert entries(bench) == []
    assert not list((bench.root / "tree").iterdir())


def test_an_error_in_a_half_saved_file_is_not_the_last_word(bench: UnitRun) -> None:
    once = "test -f done || { touch done; echo int a > a.cpp; false; }"
    bench.write("a.cpp", f"//! run {once}\n")
    bench.compile("a.cpp")
    assert bench.object_of("a.cpp").endswith("int a\n")


def test_a_header_that_comes_in_front_is_another_one(bench: UnitRun) -> None:
    bench.write("first/y.h", "")
    front = "test -f done || { touch done; cp -p new.h first/x.h; sleep 0.1; }"
    bench.write("a.cpp", f'#include "x.h"\n//! run {front}\n')
    flags = (f"-I{bench.project / 'first'}", include(bench))
    time.sleep(0.02)
    bench.compile("a.cpp", *flags)
    assert bench.starts == 2
    assert bench.object_of("a.cpp").endswith(NEW)
    (bench.project / "first/x.h").unlink()
    bench.compile("a.cpp", *flags)
    assert bench.object_of("a.cpp").endswith(OLD)


def test_a_save_while_the_unit_waits_for_memory(bench: UnitRun) -> None:
    bench = replace(bench, memory=1)
    bench.write("long.cpp", "//! sleep 1\n")
    first = bench.start(*bench.command("long.cpp", tree="other"), tree="other")
    ledger = bench.root / "run/ledger"
    eventually(lambda: ledger.exists() and " r " in ledger.read_text())
    second = bench.start(*bench.command("a.cpp", include(bench)))
    eventually(lambda: " w " in ledger.read_text())
    (bench.project / "new.h").rename(bench.project / "include/x.h")
    for process in (first, second):
        process.communicate(timeout=60)
    assert bench.object_of("a.cpp").endswith(NEW)
    bench.write("include/x.h", OLD)
    bench.forget_objects()
    bench.compile("a.cpp", include(bench))
    assert bench.object_of("a.cpp").endswith(OLD)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who waits for a lock")
def test_a_save_while_the_unit_waits_for_another(bench: UnitRun) -> None:
    bench.compile("a.cpp", include(bench))
    (lock,) = (bench.root / "cache/locks").glob("*/*")
    bench.write("include/x.h", NEW)
    handle = os.open(lock, os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    process = bench.start(*bench.command("a.cpp", include(bench)))
    eventually(lambda: str(lock.stat().st_ino) in waiting_for_locks())
    bench.write("include/x.h", OLD)
    os.close(handle)
    process.communicate(timeout=60)
    assert bench.outcomes == ["miss", "hit"]
    assert bench.object_of("a.cpp").endswith(OLD)


def waiting_for_locks() -> str:
    """Inodes of files that processes wait to lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return " ".join(line.split()[6].split(":")[-1] for line in lines if "->" in line)


@pytest.mark.parametrize("keeps", [True, False])
def test_beside_an_object_lies_what_it_was_made_from(bench: UnitRun, *, keeps: bool) -> None:
    bench = replace(bench, keeps=keeps)
    header = bench.project / "include/x.h"
    for _ in range(2):
        bench.compile("a.cpp", include(bench))
        made_from = read_recorded_inputs(str(bench.root / "tree/a.cpp.o"))
        assert list(made_from)[:2] == [f"{bench.root}/tree/a.cpp.o", f"{bench.project}/a.cpp"]
        assert str(bench.compiler) in made_from
        status, known = header.stat(), made_from[str(header)]
        assert known is not None
        assert known[:4] == (
            status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino,
        )  # fmt: skip
        bench.forget_objects()
        bench.write("a.cpp", '#include "x.h"\n')
    assert bench.outcomes == (["miss", "hit"] if keeps else ["off", "off"])

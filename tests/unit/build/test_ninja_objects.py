"""Which objects of a build tree may stay, and which disagree about a header."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.build.ninja import delete_stale_objects, read_object_inputs
from kbuild.build.unit.inputs import INPUTS_SUFFIX
from tests.support.unit_launches import UnitRun

FOLDER = "tree/CMakeFiles/k.dir"


@pytest.fixture
def bench(tmp_path: Path) -> UnitRun:
    bench = UnitRun(tmp_path)
    bench.write("a.cpp", '#include "x.h"\n')
    bench.write("b.cpp", '#include "x.h"\n')
    bench.write("include/x.h", "x is 1\n")
    bench.write("first/other.h", "")
    time.sleep(0.02)  # a tick of the clock that files are dated by
    for unit in ("a.cpp", "b.cpp"):
        compiled(bench, unit)
    return bench


def compiled(bench: UnitRun, unit: str) -> None:
    flags = (f"-I{bench.project / name}" for name in ("first", "include"))
    bench.compile(unit, *flags, tree=FOLDER)


def left(bench: UnitRun) -> list[str]:
    delete_stale_objects(bench.root / "tree")
    return sorted(path.name for path in (bench.root / FOLDER).glob("*.o"))


def test_what_is_as_it_was_stays(bench: UnitRun) -> None:
    assert left(bench) == ["a.cpp.o", "b.cpp.o"]
    (bench.project / "include/x.h").touch()
    (bench.project / "a.cpp").touch()
    assert left(bench) == ["a.cpp.o", "b.cpp.o"]


def test_what_a_killed_unit_was_writing_goes(bench: UnitRun) -> None:
    draft = bench.root / FOLDER / f"a.cpp.o{INPUTS_SUFFIX}.12.draft"
    draft.touch()
    assert left(bench) == ["a.cpp.o", "b.cpp.o"]
    assert not draft.exists()


def test_the_header_of_all_is_another_one(bench: UnitRun) -> None:
    bench.write("include/x.h", "x is 2\n")
    assert left(bench) == []


def test_a_header_that_is_found_earlier_now(bench: UnitRun) -> None:
    bench.write("first/x.h", "x is 2\n")
    assert left(bench) == []


def test_an_object_that_was_made_by_hand(bench: UnitRun) -> None:
    path = bench.root / FOLDER / "a.cpp.o"
    status = path.stat()
    path.write_text("x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert left(bench) == ["b.cpp.o"]


@pytest.mark.parametrize("record", [None, "", "kbuild-inputs 1\nnonsense"])
def test_an_object_of_unknown_inputs(bench: UnitRun, record: str | None) -> None:
    path = bench.root / FOLDER / f"a.cpp.o{INPUTS_SUFFIX}"
    path.unlink()
    if record is not None:
        path.write_text(record)
    assert left(bench) == ["b.cpp.o"]


def test_objects_agree_about_their_header(bench: UnitRun) -> None:
    objects = [f"{Path(FOLDER).relative_to('tree')}/{name}.o" for name in ("a.cpp", "b.cpp")]
    known = read_object_inputs(bench.root / "tree", objects)
    assert known.disagreeing(bench.root / "generated") == {}
    read = dict(known.below(bench.project, bench.project / ".kbuild"))
    assert sorted(path for path, then in read.items() if then) == [
        "a.cpp", "b.cpp", "include/x.h",
    ]  # fmt: skip
    assert read["first/x.h"] is None
    assert dict(known.below(bench.project, bench.project / "include")).keys() == {
        "a.cpp", "b.cpp", "first/x.h", "x.h",
    }  # fmt: skip


def test_the_object_with_the_older_header_is_made_again(bench: UnitRun) -> None:
    bench.write("include/x.h", "x is 2\n")
    compiled(bench, "b.cpp")
    objects = [f"{Path(FOLDER).relative_to('tree')}/{name}.o" for name in ("a.cpp", "b.cpp")]
    known = read_object_inputs(bench.root / "tree", objects)
    header = str(bench.project / "include/x.h")
    assert known.disagreeing(bench.root / "generated") == {bench.root / FOLDER / "a.cpp.o": header}
    bench.write("include/x.h", "x is 3\n")
    assert len(known.disagreeing(bench.root / "generated")) == 2

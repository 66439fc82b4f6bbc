"""How ninja is run, and which objects of a build tree may stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.build.ninja import (
    EXCERPT_LINES,
    ErrorExcerpt,
    delete_stale_objects,
    library_objects,
    process_failure,
    read_object_inputs,
    run_ninja,
)
from kbuild.build.unit.inputs import INPUTS_SUFFIX
from kbuild.system.errors import BuildError
from kbuild.system.processes import ProcessResult
from tests.support.unit_launches import UnitRun

FAILING = """\
[kbuild 1/4] Building CXX object CMakeFiles/relu_cpu.dir/src/relu_cpu/good.cpp.o
FAILED: [code=1] CMakeFiles/relu_cpu.dir/src/relu_cpu/bad.cpp.o
/usr/bin/c++ -c bad.cpp -o bad.cpp.o
In file included from bad.h:1:
bad.cpp:3:5: error: `x` was not declared
    3 |     x = 1;
[kbuild 2/4] Building CXX object CMakeFiles/relu_cpu.dir/src/relu_cpu/other.cpp.o
FAILED: [code=1] second.o
c++ second
second.cpp:1: error: later
ninja: build stopped: subcommand failed.
"""


class Scripted:
    """Plays a process: hands out lines and an exit code."""

    def __init__(self, output: str, returncode: int) -> None:
        self.output, self.returncode = output, returncode
        self.argv: tuple[str, ...] = ()

    def run(self, argv, *, listen=None, **_) -> ProcessResult:
        self.argv = tuple(argv)
        for line in self.output.splitlines() if listen else ():
            listen(line)
        return ProcessResult(self.argv, self.returncode, self.output, 0.1)


def run(runner: Scripted, seen: list) -> int:
    return run_ninja(
        runner,
        Path("ninja"),
        Path("tree"),
        root=Path("/home/u/k"),
        jobs=3,
        env={},
        log=Path("build.log"),
        tell=lambda *what: seen.append(what),
    )


def test_a_failure_shows_the_first_error_the_command_and_the_log() -> None:
    seen: list = []
    with pytest.raises(BuildError) as caught:
        run(Scripted(FAILING, 1), seen)
    error = caught.value
    assert error.message == "src/relu_cpu/bad.cpp did not compile"
    assert error.excerpt[0] == "bad.cpp:3:5: error: `x` was not declared"
    assert "later" not in "".join(error.excerpt)
    assert error.command == "cd tree && /usr/bin/c++ -c bad.cpp -o bad.cpp.o"
    assert error.log == Path("build.log")
    assert seen[0] == (1, 4, "src/relu_cpu/good.cpp")


def test_output_of_compilers_is_as_it_is_with_paths_of_the_project() -> None:
    output = (
        "FAILED: [code=1] CMakeFiles/k.dir/src/bad.cpp.o\nc++ -c\n"
        "/home/u/k/src/bad.cpp:3:5: error: `x` was not declared\n"
        f"    3 | {' ' * 90}x\n      | {' ' * 90}^\n"
        "ld: CMakeFiles/k.dir/home/u/k/src/bad.cpp.o: and more\n"
    )
    with pytest.raises(BuildError) as caught:
        run(Scripted(output, 1), [])
    assert caught.value.excerpt == (
        "src/bad.cpp:3:5: error: `x` was not declared",
        f"    3 | {' ' * 90}x",
        f"      | {' ' * 90}^",
        "ld: CMakeFiles/k.dir/home/u/k/src/bad.cpp.o: and more",
    )


def test_a_long_command_is_in_a_file(tmp_path: Path) -> None:
    log, command = tmp_path / "build.log", "/usr/bin/c++ -c bad.cpp " + "-DX=1 " * 200
    done = ProcessResult(("ninja",), 1, "bad.cpp:3:5: error: x", 0.1)
    error = process_failure("bad.cpp did not compile", done, tmp_path, log, command=command)
    script = tmp_path / "build-failed.sh"
    assert script.read_text() == f"#!/bin/sh\n{command}\n"
    assert f"  command: {script}\n" in str(error)
    assert "-DX" not in str(error)
    assert error.to_json()["command"] == command


def test_the_number_of_steps_that_ran_is_returned() -> None:
    runner = Scripted("[kbuild 1/2] Building CXX object a.cpp.o\n[kbuild 2/2] Linking x\n", 0)
    assert run(runner, []) == 2
    assert runner.argv == ("ninja", "-j", "3")
    assert run(Scripted("ninja: no work to do.\n", 0), []) == 0


def test_objects_are_what_the_build_knows_dependencies_of(tmp_path: Path) -> None:
    output = (
        "CMakeFiles/k.dir/a b.o: #deps 1, deps mtime 12 (VALID)\n    /p/a b.cpp\n\n"
        "c.o: #deps 0, deps mtime 12 (STALE)\n\nd.o: deps not found\n"
    )
    found = library_objects(Scripted(output, 0), Path("ninja"), tmp_path)
    assert found == ("CMakeFiles/k.dir/a b.o", "c.o")


def test_inputs_that_do_not_rest_are_named() -> None:
    output = (
        "FAILED: [code=76] a.o\npython launcher.py c++ -c a.cpp\n"
        "kbuild: error: `a.h` changed each time that a.cpp was compiled\n"
    )
    with pytest.raises(BuildError) as caught:
        run(Scripted(output, 1), [])
    assert caught.value.message == "`a.h` changed each time that a.cpp was compiled"
    assert "build again" in caught.value.hint


def test_the_first_error_is_found_behind_endless_warnings() -> None:
    lines = (f"w.cpp:{number}: warning: unused" for number in range(100_000))
    errors = ErrorExcerpt()
    for line in (
        *lines,
        "a.cpp:1: error: first",
        *("here",) * 10,
        "b.cpp:1: error: second",
        "more",
    ):
        errors.take(line)
        assert len(errors.excerpt) <= EXCERPT_LINES
    assert errors.excerpt == ("a.cpp:1: error: first", *("here",) * 10, "b.cpp:1: error: second")


def test_a_full_disk_is_named_as_the_cause() -> None:
    output = "FAILED: [code=1] a.cpp.o\nc++ -c a.cpp\nas: a.cpp.o: No space left on device\n"
    with pytest.raises(BuildError) as caught:
        run(Scripted(output, 1), [])
    assert caught.value.message.startswith(
        "a.cpp did not compile: no space is left on the file system at `"
    )
    assert "free some space" in caught.value.hint
    assert caught.value.excerpt == ("as: a.cpp.o: No space left on device",)


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

"""Files that change while kbuild builds, at moments that a compiler of the test's own decides."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
UNIT = (
    '#include "shared.h"\nextern "C" __attribute__((used)) const char mark{n}[] = "{n}" SHARED;\n'
)
# After the compilation of a certain source, a command is done in the project, once.
COMPILER = """#!/bin/sh
{compiler} "$@" || exit $?
case "$*" in
*{after}.o*) test -f "{mark}" || {{ touch "{mark}"; cd "{project}" && {command}; }} ;;
esac
"""


@pytest.fixture
def tiny(tmp_path: Path) -> CommandProject:
    bench = write_tiny(tmp_path, "cpu")
    toml = (bench.root / "build.toml").read_text()
    toml = toml.replace('src = ["cpu/quiet.cpp"]', 'src = ["cpu/a.cpp", "cpu/b.cpp"]')
    (bench.root / "build.toml").write_text(toml)
    for name in ("a", "b"):
        (bench.root / f"cpu/{name}.cpp").write_text(UNIT.format(n=name))
    (bench.root / "cpu/shared.h").write_text('#define SHARED "=1;"\n')
    (bench.root / "new.h").write_text('#define SHARED "=2;"\n')
    os.utime(bench.root / "new.h", (1e9, 1e9))
    return bench


def build(bench: CommandProject, after: str = "", command: str = "", expect: int = 0) -> str:
    """The variant's status, with a compiler that edits."""
    program = bench.root.parent / "c++"
    compiler = COMPILER.format(
        compiler=shutil.which("c++"),
        after=after or "no-such",
        mark=bench.root.parent / "done",
        project=bench.root,
        command=command or "true",
    )
    program.write_text(compiler)
    program.chmod(0o755)
    words = ("build", "--json", "--jobs", "1", "--unique-id", "x", "--backend", "cpu")
    done = bench.kbuild(*words, env={"CXX": str(program)}, expect=expect)
    (built,) = [one for one in json.loads(done.stdout)["variants"] if one["status"] != "skipped"]
    return str(built["status"])


def versions(bench: CommandProject) -> set[bytes]:
    (library,) = (bench.root / "build").glob("*/*.so")
    data = library.read_bytes()
    return {word for word in (b"a=1;", b"a=2;", b"a=3;", b"b=1;", b"b=2;") if word in data}


def test_units_that_read_two_states_of_a_header_are_compiled_again(tiny: CommandProject) -> None:
    assert build(tiny, "a.cpp", "mv new.h cpu/shared.h") == "built"
    assert versions(tiny) in ({b"a=2;", b"b=2;"}, {b"a=1;", b"b=1;"})
    assert build(tiny) in {"built", "up-to-date"}
    assert build(tiny) == "up-to-date"
    assert versions(tiny) == {b"a=2;", b"b=2;"}


def test_an_edit_after_its_unit_is_seen_by_the_next_build(tiny: CommandProject) -> None:
    assert build(tiny, "binding.cpp", "sed -i s/1/2/ cpu/shared.h") == "built"
    build(tiny)
    assert build(tiny) == "up-to-date"
    assert versions(tiny) == {b"a=2;", b"b=2;"}


def test_an_older_file_between_two_builds(tiny: CommandProject) -> None:
    assert build(tiny) == "built"
    (tiny.root / "new.h").rename(tiny.root / "cpu/shared.h")
    assert build(tiny) == "built"
    assert versions(tiny) == {b"a=2;", b"b=2;"}
    (tiny.root / "cpu/shared.h").touch()
    (tiny.root / "cpu/a.cpp").touch()
    assert build(tiny) == "up-to-date"


def test_a_generated_header_is_what_was_generated(tiny: CommandProject) -> None:
    edit = "sed -i '$ a #define EDITED' .kbuild/*/project/torch-ext/registration.h"
    text = '#ifdef EDITED\nextern "C" __attribute__((used)) const char three[] = "a=3;";\n#endif\n'
    (tiny.root / "cpu/a.cpp").write_text('#include "registration.h"\n' + UNIT.format(n="a") + text)
    toml = (
        (tiny.root / "build.toml")
        .read_text()
        .replace("depends", 'include = ["torch-ext"]\ndepends')
    )
    (tiny.root / "build.toml").write_text(toml)
    assert build(tiny, "b.cpp", edit) == "built"
    assert build(tiny) == "up-to-date"
    assert versions(tiny) == {b"a=1;", b"b=1;"}
    (header,) = tiny.root.glob(".kbuild/*/project/torch-ext/registration.h")
    assert "EDITED" not in header.read_text()


def test_a_file_of_the_package_that_is_edited_before_it_is_copied(tiny: CommandProject) -> None:
    package = tiny.root / "torch-ext/tiny/__init__.py"
    assert build(tiny, "b.cpp", f'echo "X = 1" >> {package}') == "built"
    assert build(tiny) == "up-to-date"
    (copy,) = (tiny.root / "build").glob("*/__init__.py")
    assert copy.read_text() == package.read_text()
    assert "X = 1" in copy.read_text()

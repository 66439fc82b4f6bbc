"""Headers that are compiled once: when a unit starts with them, and that nothing else changes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbuild.build.unit.header_lists import leading_headers
from kbuild.build.unit.inputs import parse_plain_depfile
from kbuild.system.processes import LocalRunner
from kbuild.system.unit_settings import LauncherSettings

LAUNCHER = Path(__file__).parents[4] / "kbuild" / "build" / "launcher.py"
MINE = b"// mine\n#pragma once\n#include <torch/b.h>\nint x;\n#include <torch/c.h>\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("#include <torch/a.h>\n#include <v>\nint x;\n#include <torch/b.h>", ["torch/a.h", "v"]),
        ("// a\n/* b\n */\n\n # include <torch/a.h> // c\n", ["torch/a.h"]),
        ("#define NDEBUG\n#include <torch/a.h>\n", []),
        ("#ifdef X\n#include <torch/a.h>\n#endif\n", []),
        ("int x;\n#include <torch/a.h>\n", []),
        ("#include <torch/a.h> int x;\n", []),
        ("#include TORCH\n#include <torch/a.h>\n", []),
        ("#pragma once\n#include <torch/a.h>\n", []),
        ("// a \\\n#include <torch/a.h>\n", []),
        ("/* #include <torch/a.h>", []),
        ("#include \\\n<torch/a.h>", []),
        ('#include <v>\n#include "mine.h"\n#include <torch/c.h>', ["v", "torch/b.h"]),
        ('#include "guarded.h"\n#include <torch/c.h>', []),
    ],
)  # fmt: skip
def test_leading_headers(text: str, expected: list[str]) -> None:
    files = {"mine.h": MINE, "guarded.h": b"#ifndef G\n#define G\n#include <torch/b.h>\n#endif\n"}
    assert list(leading_headers(text.encode(), files.__getitem__)) == expected


SOURCE = "#include <torch/a.h>\n#include <torch/b.h>\nint use() { return a(b()); }\n"


@dataclass
class Place:
    """A project, a Torch of a few lines, and a cache."""

    root: Path
    limit: int = 1 << 30
    macros: tuple[str, ...] = ("-DTORCH_EXTENSION_NAME=_x_1", "-DCPU_KERNEL")
    options: tuple[str, ...] = ("-O2", "-std=c++17", "-fno-canonical-system-headers")
    log: list[dict[str, Any]] = field(default_factory=list)

    said: str = ""

    def __post_init__(self) -> None:
        self.project = self.root / "project"
        for folder in ("torch-a/torch", "run", "cache", "project"):
            (self.root / folder).mkdir(parents=True)
        self.header("a.h", "int a(int x)")
        self.header("b.h", "int b()")

    def header(self, name: str, declaration: str) -> None:
        path = self.root / "torch-a" / "torch" / name
        path.write_text(f"#pragma once\n#include <cstddef>\ninline {declaration} {{ return 1; }}\n")
        os.utime(path, (1e9, 1e9))

    def compile(self, text: str = SOURCE, name: str = "x.cpp", limit: int | None = None) -> Path:
        """The object of a source, as the launcher makes it; its line of the log is the last one."""
        source = self.project / name
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        settings = LauncherSettings(
            run=str(self.root / "run"), cache=str(self.root / "cache"), memory=4096,
            root=str(self.project), headers=self.limit if limit is None else limit,
        )  # fmt: skip
        torch = self.root / "torch-a"
        target = self.project / f"{name}.o"
        words = (
            "g++", *self.macros, "-I", str(self.project), "-isystem", str(torch), *self.options,
            f"-ffile-prefix-map={self.project}=/kernel", f"-ffile-prefix-map={torch}=/torch",
            f"-frandom-seed={name}", "-MD", "-MT", "x.o", "-MF", f"{target}.d",
            "-o", str(target), "-c", str(source),
        )  # fmt: skip
        command = (sys.executable, "-I", "-S", str(LAUNCHER), "CXX", *words)
        environ = {**os.environ, **settings.to_environment()}
        done = LocalRunner().run(command, env=environ, cwd=self.project)
        lines = (self.root / "run" / "units.jsonl").read_text().splitlines()
        self.log = [json.loads(line) for line in lines]
        assert done.ok == (self.log[-1]["status"] == 0), done.output
        self.said = done.output
        return target

    def warm(self) -> None:
        """Have the headers of `SOURCE` compiled."""
        for number in range(3):
            self.compile(f"{SOURCE}// {number}\n", "warm.cpp")
        assert self.precompiled == "made", self.log

    @property
    def precompiled(self) -> str | None:
        assert "warning" not in self.log[-1]
        return self.log[-1].get("precompiled")

    def without(self, text: str = SOURCE) -> tuple[bytes, str]:
        """Object and dependencies of the same compilation without them, and without a cache."""
        shutil.rmtree(self.root / "cache" / "objects", ignore_errors=True)
        target = self.compile(text, limit=0)
        made = target.read_bytes(), Path(f"{target}.d").read_text()
        shutil.rmtree(self.root / "cache" / "objects")
        return made


pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs GCC"),
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def dependencies(target: Path) -> list[str]:
    return list(dict.fromkeys(parse_plain_depfile(Path(f"{target}.d").read_text())))


def test_third_compilation_makes_them_and_nothing_changes(place: Place) -> None:
    data, depends = place.without()
    told = []
    for number in range(4):
        place.compile(f"{SOURCE}// {number}\n", "warm.cpp")
        told.append(place.precompiled)
    assert told == [None, None, "made", "used"]
    target = place.compile()
    assert place.precompiled == "used"
    assert target.read_bytes() == data
    assert dependencies(target) == list(dict.fromkeys(parse_plain_depfile(depends)))
    assert place.log[-1]["cache"] == "miss"
    target.unlink()
    place.compile(limit=0)
    assert place.log[-1]["cache"] == "hit"  # the key is the same with and without
    assert target.read_bytes() == data


def test_another_project_uses_them(place: Place) -> None:
    place.warm()
    place.project = place.root / "other"
    place.project.mkdir()
    place.macros = ("-DTORCH_EXTENSION_NAME=_y_2", "-DCUDA_KERNEL")
    place.compile(name="y.cpp")
    assert place.precompiled == "used"
    place.options = (*place.options, "-O3")
    place.compile(name="z.cpp")
    assert place.precompiled is None


def test_variants_for_two_toolkits_share_them(place: Place) -> None:
    def toolkit(number: int) -> tuple[str, ...]:
        folder = place.root / f"toolkit-{number}"
        return "-isystem", str(folder), "-isystem", str(folder / "more")

    plain = place.options
    for name in ("toolkit-1", "toolkit-2"):
        (place.root / name / "more").mkdir(parents=True)
        (place.root / name / "cuda_runtime.h").write_text("#pragma once\n")
        os.utime(place.root / name / "cuda_runtime.h", (1e9, 1e9))
    place.options = (*plain, *toolkit(1))
    place.warm()
    place.options = (*plain, *toolkit(2))
    place.compile()
    assert place.precompiled == "used"
    for number in range(4):  # what includes a toolkit's headers is not compiled once
        place.compile(f"#include <cuda_runtime.h>\n{SOURCE}// {number}\n")
        assert place.precompiled is None


@pytest.mark.parametrize(
    "text",
    [
        "#define A 1\n#include <torch/a.h>\n#include <torch/b.h>\nint x = A;",
        "#include <torch/b.h>\n#include <torch/a.h>\nint x = a(b());",
        "#include <cstddef>\n#include <torch/a.h>\n#include <torch/b.h>\nint x = a(b());",
    ],
)
def test_sources_that_begin_otherwise(place: Place, text: str) -> None:
    place.warm()
    place.compile(text)
    assert place.precompiled is None
    assert place.log[-1]["status"] == 0


def test_changed_header_discards_them(place: Place) -> None:
    place.warm()
    place.header("b.h", "long b()")
    target = place.compile()
    assert place.precompiled is None
    assert target.read_bytes() == place.without()[0]
    assert not list((place.root / "cache" / "headers").rglob("*.gch"))


def test_header_of_the_project_that_hides_one(place: Place) -> None:
    place.warm()
    (place.project / "torch").mkdir()
    (place.project / "torch" / "b.h").write_text("inline int b() { return 7; }\n")
    os.utime(place.project / "torch" / "b.h", (1e9, 1e9))
    target = place.compile()
    assert place.precompiled is None
    assert target.read_bytes() == place.without()[0]


def test_macro_that_a_header_reads_after_all(place: Place) -> None:
    """GCC refuses the file; the unit is compiled without it, and it is not made again."""
    place.header("b.h", "int b(int CPU_KERNEL = 2)")
    place.macros = ("-DCPU_KERNEL=kernel",)
    for number in range(4):
        place.compile(f"{SOURCE}// {number}\n", "warm.cpp")
        assert place.log[-1]["status"] == 0
        assert "pch" not in place.said.lower()
        assert place.precompiled is None
        assert ("precompiling" in place.log[-1]) == (number == 2)
    assert not list((place.root / "cache" / "headers").rglob("*.gch"))


@pytest.mark.parametrize(
    ("trouble", "is_refusal"),
    [
        ("ulimit -f 8", False),
        ("echo 'g++: fatal error: cannot write: No space left on device' >&2; exit 1", False),
        ("echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1", False),
        ("echo 'g++: fatal error: Terminated signal terminated program x' >&2; exit 1", False),
        ("kill -TERM $$", False),
        ("echo 'torch/a.h:1:1: error: this is no header' >&2; exit 1", True),
        ("echo 'internal compiler error: Aborted signal terminated program x' >&2; exit 4", True),
    ],
)  # fmt: skip
def test_full_disk_is_no_refusal(
    place: Place, monkeypatch: pytest.MonkeyPatch, trouble: str, is_refusal: bool
) -> None:
    """Once the disk has room again, the headers are made; what GCC refuses is not tried again."""
    source = "#include <torch/a.h>\n"
    shell, real = place.root / "trouble.sh", shutil.which("g++")
    shell.write_text(trouble)
    wrapper = place.root / "bin" / "g++"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *c++-header*) . {shell} ;; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    for number in range(3):
        place.compile(f"{source}// {number}\n", "warm.cpp")
        assert (place.log[-1]["status"], place.precompiled) == (0, None)
    assert "precompiling" in place.log[-1]
    shell.write_text(":")
    for number in range(3):
        place.compile(f"{source}// again {number}\n", "warm.cpp")
    assert place.precompiled == (None if is_refusal else "made")

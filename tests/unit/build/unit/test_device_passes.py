"""Device passes of one unit that share a verification: same objects as nvcc's own, or none used."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from kbuild.build.unit.command import CompileCommand
from kbuild.build.unit.device_passes import PassGroup, SharedDevicePasses
from kbuild.runtime.processes import LocalRunner
from kbuild.runtime.unit_settings import LauncherSettings

LAUNCHER = Path(__file__).parents[4] / "kbuild" / "build" / "launcher.py"
KERNEL = "__global__ void kernel(int *out) { out[0] = %s; }\n"
USE = "int use(at::Tensor x) { return x.size; }\n"

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("nvcc"), reason="needs nvcc on Linux"
    ),
]


class Place:
    """A project, and a Torch whose large part is text that compilers read at once."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, dict[str, Any]()
        self.said = ""
        self.jobs, self.server = 1, dict[str, str]()
        for folder in ("torch-a/torch", "torch-a/ATen/core", "project", "run", "cache"):
            (root / folder).mkdir(parents=True)
        self.header("torch/all.h", "#include <ATen/core/Tensor.h>\n#include <torch/large.h>\n")
        self.header("ATen/core/Tensor.h", "namespace at { struct Tensor { int size; }; }\n")
        self.large()

    def header(self, name: str, text: str) -> None:
        (self.root / "torch-a" / name).write_text(f"#pragma once\n{text}")

    def large(self, text: str = "") -> None:
        bulk = f'static_assert(sizeof("{"x" * 30_000}") > 1, "");\n' * 80
        self.header("torch/large.h", f"{bulk}namespace at {{ int large(); }}\n{text}")

    def compile(
        self, text: str, archs: tuple[str, ...] = ("80", "90"), *flags: str, headers: int = 1
    ) -> tuple[bytes, str]:
        """The object of a source and its dependencies, as the launcher makes them."""
        source = self.root / "project" / "x.cu"
        source.write_text(text)
        shutil.rmtree(self.root / "cache", ignore_errors=True)
        settings = LauncherSettings(
            run=str(self.root / "run"), cache=str(self.root / "cache"), memory=9999 * self.jobs,
            root=str(source.parent), headers=headers, jobs=self.jobs, compilers="nvcc=13.0.88",
        )  # fmt: skip
        command = (
            sys.executable, "-I", "-S", str(LAUNCHER), "CUDA", "nvcc", "-std=c++17", *flags,
            *(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs),
            "-isystem", str(self.root / "torch-a"), "-MD", "-MT", "x.o", "-MF", "x.o.d",
            "-o", "x.o", "-c", str(source),
        )  # fmt: skip
        environ = {**os.environ, **settings.to_environment(), **self.server}
        done = LocalRunner().run(command, env=environ, cwd=source.parent)
        self.said = done.output
        lines = (self.root / "run" / "units.jsonl").read_text().splitlines()
        self.log = json.loads(lines[-1])
        assert "warning" not in self.log
        assert sorted(path.name for path in (self.root / "run").iterdir()) == [
            "ledger",
            "units.jsonl",
        ]
        target = source.parent / "x.o"
        if not done.ok:
            return b"", ""
        made = target.read_bytes(), Path(f"{target}.d").read_text()
        target.unlink()
        return made

    def shared(self, text: str, archs: tuple[str, ...] = ("80", "90"), *flags: str) -> int:
        """How many architectures were compiled with fewer headers; the object is nvcc's own."""
        made = self.compile(text, archs, *flags)
        assert made[0], self.said
        count, said = int(self.log["shared_passes"]), self.said
        assert self.compile(text, archs, *flags, headers=0) == made
        assert self.said == said
        assert "shared_passes" not in self.log
        return count


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def source(value: str, before: str = "") -> str:
    return f"#include <torch/all.h>\n{before}{USE}{KERNEL % value}"


def test_all_but_one_architecture_are_compiled_with_fewer_headers(place: Place) -> None:
    assert place.shared(source("1"), ("80", "90", "100")) == 2
    assert "torch/large.h" in place.compile(source("1"))[1]


def test_a_macro_of_a_header_that_is_left_out_counts(place: Place) -> None:
    place.large("#define LARGE 7\n#define ON_90 __CUDA_ARCH__ >= 900\n")
    text = source("value", "#ifdef LARGE\nconstexpr int value = LARGE;\n#endif\n")
    assert place.shared(text) == 1
    text = text.replace("#ifdef LARGE", "#if ON_90\n#undef LARGE\n#define LARGE 8\n#endif\n#if 1")
    assert place.shared(text) == 0


OVERLOADS = (
    ("constexpr int pick(long) { return 1; }\n", "constexpr int pick(int) { return 2; }\n"),
    (
        "template <typename T> constexpr int pick(T) { return 1; }\n",
        "template <typename T> constexpr int pick(T *) { return 2; }\n",
    ),
)


@pytest.mark.parametrize(("before", "large"), OVERLOADS)
def test_an_overload_of_a_header_that_is_left_out_counts(
    place: Place, before: str, large: str
) -> None:
    place.large(large)
    value = "pick(static_cast<int *>(nullptr))" if "*" in large else "pick(0)"
    assert place.shared(source(value, before), ("80", "90"), "-expt-relaxed-constexpr") == 0


def test_a_specialisation_of_a_header_that_is_left_out_counts(place: Place) -> None:
    place.header(
        "ATen/core/Tensor.h",
        "namespace at { struct Tensor { int size; };\n"
        "template <typename T> struct Kind { enum { value = 1 }; }; }\n",
    )
    place.large("template <> struct at::Kind<int> { enum { value = 2 }; };\n")
    assert place.shared(source("at::Kind<int>::value")) == 0
    assert place.shared(source("at::Kind<long>::value")) == 1


def test_what_was_compiled_before_the_verification_fails_is_compiled_again(place: Place) -> None:
    place.large("constexpr int pick(int) { return 2; }\n")
    text = source("pick(0)", "constexpr int pick(long) { return 1; }\n")
    pipe = place.root / "tokens"
    os.mkfifo(pipe)
    keep = os.open(pipe, os.O_RDWR)
    os.write(keep, b"+++")
    place.jobs, place.server = 4, {"MAKEFLAGS": f"--jobserver-auth=fifo:{pipe}"}
    try:
        archs = ("80", "86", "90", "100")
        assert place.shared(text, archs, "-expt-relaxed-constexpr") == 0
        assert place.log["threads"] == 4
        assert place.shared(source("1"), archs) == 3
    finally:
        os.close(keep)


def test_a_group_is_sound_if_nothing_unverified_was_delivered(tmp_path: Path) -> None:
    group = PassGroup(str(tmp_path))
    assert group.is_sound
    assert group.count("delivered") == 0
    assert not group.is_sound
    group.settle("whole", b"a", b"x.h(1): warning\nx.cu(1): warning\n")
    assert not group.is_sound
    group.settle("lean", b"a", b"x.cu(1): warning\n")  # x.h was left out
    assert group.is_sound
    group.settle("lean", b"a", b"y.h(1): warning\n")
    assert not group.is_sound
    group.settle("lean", b"b", b"")
    assert not group.is_sound
    group.settle("lean", b"", b"")
    assert not group.is_sound


def test_each_group_of_architectures_has_its_own_verification(place: Place) -> None:
    known = "#if __CUDA_ARCH__ >= 900\n#define value 2\n#else\n#define value 1\n#endif\n"
    text = source("value", known)
    assert place.shared(text, ("80", "86", "90", "100")) == 2


def test_architectures_with_a_text_each_are_compiled_as_usual(place: Place) -> None:
    known = "#ifdef __CUDA_ARCH__\n#define value __CUDA_ARCH__\n#endif\n"
    text = source("value", f"{known}#ifndef value\n#define value 0\n#endif\n")
    assert place.shared(text) == 0


def test_a_name_that_was_left_out(place: Place) -> None:
    text = source("1", "int more() { return at::large(); }\n")
    assert place.shared(text, ("80", "86", "90")) == 0


def test_errors_are_nvccs(place: Place) -> None:
    text = source("nothing")
    assert place.compile(text) == (b"", "")
    said = place.said
    assert 'identifier "nothing" is undefined' in said
    assert place.compile(text, headers=0) == (b"", "")
    assert place.said == said


def test_warnings_are_nvccs(place: Place) -> None:
    assert place.shared(source("1; int unused = 1")) == 1
    assert "unused" in place.said


def test_without_torch_nothing_is_left_out(place: Place) -> None:
    assert place.shared(KERNEL % "1") == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), True),
        (("-O3", "-expt-extended-lambda", "-g0"), True),
        (("-g",), False),
        (("-Xcompiler=-O2,-ggdb",), False),
        (("-G",), False),
        (("-lineinfo",), False),
        (("-rdc=true",), False),
        (("-dc",), False),
        (("--keep",), False),
    ],
)
def test_options_with_which_more_follows_from_a_text(
    place: Place, words: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    archs = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90")]
    argv = [
        "nvcc", *words, *archs, "-isystem", str(place.root / "torch-a"), "-MD", "-MF", "x.d",
        "-o", "x.o", "-c", "x.cu",
    ]  # fmt: skip

    def is_possible(argv: list[str], **changed: Any) -> bool:
        known = {"run": "/r", "cache": "/c", "memory": 1, "headers": 1, **changed}
        command = CompileCommand(argv, "CUDA", str(place.root))
        return SharedDevicePasses(LauncherSettings(**known), command).is_possible

    assert is_possible(argv) is expected
    assert not is_possible([word for word in argv if word != archs[0]])
    assert not is_possible(argv, cache="")
    assert not is_possible(argv, headers=0)
    assert not is_possible(argv, tool="ccache")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-lineinfo")
    assert not is_possible(argv)

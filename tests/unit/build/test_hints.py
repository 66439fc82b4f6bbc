"""Hints on errors of compilers and linkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.build.hints import compile_hint, link_hint, python_module_error

NOT_ON = "ptxas k.ptx, line 23; error   : Instruction '{}' not supported on .target 'sm_{}'"
CANNOT = (
    "ptxas k.ptx, line 2; error   : Instruction '{}' cannot be compiled for architecture 'sm_{}'"
)
FEATURE = "ptxas k.ptx, line 22; error   : Feature '{}' not supported on .target 'sm_{}'"
NEWER = "ptxas k.ptx, line 31; error   : Feature '{}' requires .target sm_{} or higher"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (NOT_ON.format("wgmma.fence", 90), "write `9.0a` instead of `9.0`"),
        (NOT_ON.format("setmaxnreg.inc", 90), "write `9.0a` instead of `9.0`"),
        (NOT_ON.format("setmaxnreg.inc", 120), "write `12.0a` instead of `12.0`"),
        (NOT_ON.format("tcgen05.wait", 100), "write `10.0a` instead of `10.0`"),
        (NOT_ON.format("tcgen05.wait", 103), "write `10.3a` instead of `10.3`"),
        (FEATURE.format(".kind::f8f6f4", 120), "write `12.0a` instead of `12.0`"),
        (CANNOT.format("wgmma.fence", 100), 'name `"9.0a"` alone'),
        (NOT_ON.format("wgmma.fence", 80), 'name `"9.0a"` alone'),
        (NOT_ON.format("tcgen05.wait", 90), 'name `"10.0a"` or `"10.3a"` alone'),
        (NEWER.format("redux", 80), "`redux` needs a GPU of 8.0 or later"),
        ("ptxas fatal   : Ptx assembly aborted due to errors", ""),
        ("k.cu(3): error: identifier `x` is undefined", ""),
    ],
)
def test_instructions_of_some_gpus(line: str, words: str) -> None:
    hint = compile_hint(["In file included from k.cu", line])
    assert words in hint
    assert bool(hint) is bool(words)


FIRST = "CMakeFiles/k.dir{root}/src/a.cu.o:a.cu:(.text+0x0): first defined here"
TWICE = (
    "/usr/bin/ld: CMakeFiles/k.dir{root}/src/body.cu.o: in function `f()':",
    f"body.cu:(.text+0x0): multiple definition of `f()'; {FIRST}",
)


@pytest.mark.parametrize(
    ("include", "words"),
    [
        ('#include "body.cu"', "`src/a.cu` includes `src/body.cu`"),
        ("# include <src/body.cu>", "`src/a.cu` includes `src/body.cu`"),
        ('#include "nobody.cu"', ""),
    ],
)
def test_a_source_that_includes_another(tmp_path: Path, include: str, words: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cu").write_text(f"{include}\n")
    (tmp_path / "src/body.cu").write_text("void f() {}\n")
    hint = link_hint([line.format(root=tmp_path) for line in TWICE], tmp_path)
    assert words in hint
    assert bool(hint) is bool(words)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("PYBIND11_MODULE(NAME, m) {}", "pybind11/buffer_info.h:1: error: `Py_buffer`", True),
        ("// PYBIND11_MODULE", "pybind11/buffer_info.h:1: error: `Py_buffer`", False),
        ("PYBIND11_MODULE(NAME, m) {}", "a.cpp:3: error: `x` was not declared", False),
    ],
)
def test_modules_of_pybind11(tmp_path: Path, text: str, line: str, expected: bool) -> None:
    (tmp_path / "a.cpp").write_text(f"#include <torch/extension.h>\n{text}\n")
    reason, hint = python_module_error(tmp_path / "a.cpp", [line])
    assert ("pybind11" in reason) is expected
    assert ("migrate-from-cpp-extension.md" in hint) is expected

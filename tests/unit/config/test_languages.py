"""Sections in Python DSLs: all that is wrong with them, and that nothing builds them yet."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "languages" / "examples"
GENERAL = """\
[general]
name = "add"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]
[torch]
"""
FILES = {"torch-ext/add/__init__.py": "__all__ = []\n", "add_triton/add.py": ""}
ADD = GENERAL + (EXAMPLES / "add.toml").read_text("utf-8")
NOT_YET = "build.toml:10: kernel.add.language: kbuild cannot build `triton` kernels yet\n  hint: "


def test_one_clear_error(say, said):
    (problem,) = say(ADD, FILES)
    assert problem.severity == "error"
    assert said(ADD, FILES).startswith(NOT_YET)


@pytest.mark.parametrize("backend", ["rocm", "cuda"])
def test_of_both_backends(said, backend):
    text = ADD.replace('"cuda"', f'"{backend}"').replace("cuda-capabilities", "rocm-archs")
    text = text.replace('["8.0", "9.0"]', '["gfx942"]')
    if backend == "cuda":
        text = ADD
    assert NOT_YET in said(text, FILES)


def test_everything_else_at_once(said):
    text = ADD.replace("add.py", "ad.py").replace("cdiv(n, BLOCK)", "cdiv(n, BLOK)")
    text = text.replace("src =", "cuda-flags = []\nsrc =").replace('license = "MIT"\n', "")
    found = said(text, FILES)
    assert "kernel.add.language: kbuild cannot build `triton` kernels yet" in found
    assert "general.license: is missing" in found
    assert "kernel.add.cuda-flags: unknown key\n  hint: allowed: `backend`, `cuda-cap" in found
    assert "kernel.add.src: `add_triton/ad.py` does not exist\n  hint: did you mean" in found
    assert "build.toml:22: kernel.add.op[0].grid: `cdiv(n, BLOK)`: `BLOK` is unknown" in found


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ('"tritn"', "`tritn` is not a language\n  hint: did you mean `triton`?"),
        ('"cuda"', "`cuda` is not a language\n  hint: allowed: `c++`"),
        ("3", "must be `c++`, not an integer"),
    ],
)
def test_no_languages(said, language, words):
    assert f"kernel.add.language: {words}" in said(ADD.replace('"triton"', language, 1), FILES)


def test_backends_without_dsls(said):
    text = ADD.replace('"cuda"', '"cpu"')
    hint = "a key of cuda kernels, and this is a cpu one"
    assert f"kernel.add.language: unknown key\n  hint: {hint}" in said(text, FILES)


def test_cxx_is_a_language(say):
    kernel = '[kernel.add]\nbackend = "cuda"\nlanguage = "c++"\ndepends = []\nsrc = ["a.cpp"]\n'
    assert say(GENERAL + kernel, {**FILES, "a.cpp": ""}) == ()


def test_a_cxx_kernel_beside_it_is_judged(said):
    kernel = '[kernel.other]\nbackend = "cuda"\nsrc = ["add_triton/add.py"]\n'
    found = said(ADD + kernel, FILES)
    assert "kernel.other.depends: is missing" in found
    assert "kernel.add.depends" not in found


def test_the_examples_have_nothing_else(say):
    for path in EXAMPLES.glob("*.toml"):
        text = GENERAL + path.read_text("utf-8")
        sources = {line.strip(' "') for line in text.split("src = [")[1].split("]")[0].split(",")}
        problems = say(text, {**FILES, **dict.fromkeys(sources, "")})
        assert [problem.key.split(".")[-1] for problem in problems] == ["language"], path

"""`kbuild aot cute`: what is wrong with a command line, before anything is compiled."""

from __future__ import annotations

import pytest

GOOD = ["--function", "add", "--arg", "x=float32[N]", "--target", "sm_90a"]


@pytest.fixture
def source(here):
    (here / "k.py").write_text("")
    return "k.py"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (GOOD[2:], "`kbuild aot cute` needs --function"),
        (GOOD[:4], "`kbuild aot cute` needs --target"),
        ([*GOOD, "--target", "sm_75"], "`sm_75` is nothing that nvidia-cutlass-dsl==4.8.1"),
        ([*GOOD, "--target", "compute_90"], "`compute_90` is nothing that"),
        ([*GOOD, "--target", "gfx942"], "`gfx942` is nothing that"),
        ([*GOOD, "--target", "90"], "`90` is not a target"),
        ([*GOOD, "--arg", "x"], "--arg: `x` is no argument"),
        ([*GOOD, "--toolchain", "nvidia-cutlass-dsl==4.4.2"], "libcuda.so.1"),
        ([*GOOD, "--emit", "ptx"], "invalid choice"),
    ],
)
def test_what_is_wrong(kbuild, source, arguments, words):
    done = kbuild("aot", "cute", source, *arguments)
    assert done.code == 2
    assert words in done.err

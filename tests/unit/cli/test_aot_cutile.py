"""`kbuild aot cutile`: what is wrong with a command line, before anything is compiled."""

from __future__ import annotations

import pytest

GOOD = ["--function", "k", "--grid", "1", "--target", "sm_90"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (GOOD[2:], "`kbuild aot cutile` needs --function and --grid"),
        ([*GOOD, "-t", "sm_75"], "cuda-tile==1.7.0 compiles for: 7.5: cuTile compiles for 8.0"),
        ([*GOOD, "-t", "compute_90"], "it makes machine code for CUDA alone"),
        ([*GOOD, "-t", "gfx942"], "it makes machine code for CUDA alone"),
        ([*GOOD, "--toolchain", "cuda-tile==1.3.0"], "--toolchain pins cuda-tile 1.3.0"),
        ([*GOOD, "--arg", "x=float32[M, 8]"], "a size is passed in each call"),
        ([*GOOD, "--arg", "x=float32[M, N%8]"], "`%16`, `@16` and a stride of 1 can be assumed"),
        ([*GOOD, "--arg", "x=float32[M, N; 7, 1]"], "and a stride of 1 can be assumed"),
        ([*GOOD, "--arg", "s=(i32, i32)"], "pass the items of a tuple separately"),
        ([*GOOD, "--arg", "x=float32[N]", "--grid", "x_shape_1"], "`x_shape_1` is not an integer"),
    ],
)
def test_what_is_wrong(kbuild, here, arguments, words):
    (here / "k.py").write_text("")
    done = kbuild("aot", "cutile", "k.py", *arguments)
    assert done.code == 2
    assert words in done.err

"""Flags of a package: none is lost without a word."""

from __future__ import annotations

import pytest

from kbuild.plugins.migrate.package import ForeignExtension
from kbuild.plugins.migrate.sections import FlagReader


@pytest.mark.parametrize(
    ("flags", "kept", "archs"),
    [
        (["-O3", "-std=c++17", "-Wall"], ["-Wall"], []),
        (["-Xcompiler", "-fPIC", "--use_fast_math"], ["--use_fast_math"], []),
        (["-Xcompiler", "-fPIC,-Wall", "-v"], ["-Xcompiler=-Wall", "-v"], []),
        (["-Xcompiler=-O3,-fopenmp"], ["-Xcompiler=-fopenmp"], []),
        (
            ["-Xcompiler", "-Wall", "-Xcompiler", "-Wextra"],
            ["-Xcompiler=-Wall", "-Xcompiler=-Wextra"],
            [],
        ),
        (["-Xptxas", "-v", "-Xptxas", "-O3"], ["-Xptxas", "-v", "-Xptxas", "-O3"], []),
        (["-t", "4", "-lineinfo"], ["-lineinfo"], []),
        (["--threads=4", "-lineinfo"], ["-lineinfo"], []),
        (["-std", "c++17", "-Wall"], ["-Wall"], []),
        (["-D", "A=1", "-U", "B"], ["-DA=1", "-UB"], []),
        (["-include", "a.h", "-O2"], ["-include", "a.h"], []),
        (["-gencode", "arch=compute_80,code=sm_80", "-G"], ["-G"], ["8.0"]),
        (["-gencode=arch=compute_90,code=compute_90"], [], ["9.0+PTX"]),
        (["-gencode arch=compute_80,code=sm_80 -lineinfo"], ["-lineinfo"], ["8.0"]),
        (["-arch=sm_90a", "-lineinfo"], ["-lineinfo"], ["9.0a"]),
        (["-arch", "sm_86", "-lineinfo"], ["-lineinfo"], ["8.6"]),
        (["--generate-code=arch=compute_90,code=[sm_90,compute_90]"], [], ["9.0", "9.0+PTX"]),
        (['-DTEXT="a b"'], ['-DTEXT="a b"'], []),
    ],
)  # fmt: skip
def test_what_is_kept(flags, kept, archs):
    left = []
    reader = FlagReader(ForeignExtension("a", ()), left)
    units = reader.kept(flags, "CUDA")
    assert [word for unit in units for word in unit] == kept
    assert (reader.archs, left) == (archs, [])


@pytest.mark.parametrize(
    ("flags", "kept", "note"),
    [
        (["-arch=native", "-lineinfo"], ["-lineinfo"], "`-arch=native` names no arch"),
        (["-arch", "all", "-v"], ["-v"], "`-arch all` names no arch"),
        (["-gencode", "arch=compute_90,code=lto_90"], [], "code=lto_90` names no arch"),
        (["-Wl,-s", "-v"], ["-v"], "`-Wl,-s` is not for the compiler"),
        (["-lcublas", "-v"], ["-v"], "`-lcublas` is not for the compiler"),
        (["$<$<CONFIG:Debug>:-g>"], [], "`$<$<CONFIG:Debug>:-g>` is not for"),
    ],
)
def test_what_is_left_has_its_place(flags, kept, note):
    left = []
    extension = ForeignExtension("a", (), places={"extra_compile_args": "setup.py:7"})
    units = FlagReader(extension, left).kept(flags, "CUDA")
    assert [word for unit in units for word in unit] == kept
    assert left[0].startswith("setup.py:7: the CUDA flag ")
    assert note in left[0]


def test_folders_of_headers():
    reader = FlagReader(ForeignExtension("a", ()), [])
    assert reader.kept(["-Icsrc", "-I", "include", "-isystem", "/x", "-v"], "C++") == [("-v",)]
    assert reader.include == ["csrc", "include", "/x"]

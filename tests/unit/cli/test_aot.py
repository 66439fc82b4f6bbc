"""`kbuild aot`: what is wrong with a command line, before anything is compiled; and linking."""

from __future__ import annotations

import pytest

from tests.support.exported_functions import files

GOOD = ["-n", "add", "-s", "*fp32", "-g", "1", "-t", "cuda:80:32"]


@pytest.fixture
def source(here):
    (here / "k.py").write_text("")
    return "k.py"


def without(option):
    at = GOOD.index(option)
    return GOOD[:at] + GOOD[at + 2 :]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (without("-n"), "`kbuild aot triton` needs --kernel-name"),
        (without("-s"), "needs --signature"),
        (without("-g"), "needs --grid"),
        (without("-t"), "needs --target"),
        ([*GOOD, "-t", "hip:gfx942:64"], "targets of CUDA and AMD in one command"),
        ([*GOOD, "-t", "sm_9"], "`sm_9` is not a target"),
        ([*GOOD, "-t", "cuda:61"], "`sm_61` is nothing that triton==3.9.0 compiles for: 6.1"),
        ([*GOOD, "-t", "compute_90"], "`compute_90` is nothing that"),
        ([*GOOD, "-t", "sm_100f"], "compiles for the chip, sm_100a, not for its family"),
        ([*GOOD, "--cuda", "12", "-t", "cuda:110"], "`sm_110a` is nothing that"),
    ],
)
def test_what_is_wrong(kbuild, source, arguments, words):
    done = kbuild("aot", "triton", source, *arguments)
    assert done.code == 2
    assert words in done.err


def test_sources_that_are_not_there(kbuild, here):
    assert "there is no file" in kbuild("aot", "triton", "none.py", *GOOD).err
    (here / "in").mkdir()
    for path in ("in/k.py", "l.py"):
        (here / path).write_text("")
    assert (
        "is outside the folder of `k.py`" in kbuild("aot", "triton", "in/k.py", "l.py", *GOOD).err
    )


def test_linking(kbuild, here):
    for exported in (files(target="sm_80"), files(target="sm_90a")):
        exported.write(here, manifest=False)
    headers = sorted(path.name for path in here.glob("*.h"))
    done = kbuild("aot", "link", *headers, "-o", "out/all", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == {"files": [str(here / "out" / name) for name in ("all.c", "all.h")]}
    assert "int add_default(" in (here / "out" / "all.h").read_text("utf-8")
    assert kbuild("aot", "link", *headers, "-o", "all").out.split() == [
        str(here / name) for name in ("all.c", "all.h")
    ]


def test_what_cannot_be_linked(kbuild, here):
    assert "needs --out-path" in kbuild("aot", "link", "a.h").err
    assert "`a.h` cannot be read" in kbuild("aot", "link", "a.h", "-o", "all").err
    (here / "a.h").write_bytes(b"\xff")
    assert "`a.h` cannot be read" in kbuild("aot", "link", "a.h", "-o", "all").err

from __future__ import annotations

import pytest

from tests.support.cutlass_trees import make_tree
from tests.support.projects import BINDING, kernel, write_project

SECTION = kernel("cpu").replace('["torch"]', '["torch", "cutlass_3_8"]')


@pytest.fixture
def halves(here):
    return write_project(here / "halves", BINDING, SECTION)


@pytest.mark.parametrize(
    ("entry", "words", "hint"),
    [
        ("cutlass_3_8", "takes NAME=DIR, not `cutlass_3_8`", "cutlass_4_0="),
        ("=x", "takes NAME=DIR", ""),
        ("cutlass_3_8=", "takes NAME=DIR", ""),
        ("cutlas_3_8=x", "there is no dependency `cutlas_3_8`", "did you mean `cutlass_3_8`?"),
        ("torch=x", "there is no dependency `torch`", "allowed: "),
    ],
)
def test_entries_that_say_nothing(kbuild, halves, entry, words, hint):
    answer = kbuild("plan", "halves", "--with-source", entry)
    assert answer.code == 2
    assert words in answer.err
    assert hint in answer.err


@pytest.mark.parametrize("command", ["plan", "build", "list-variants"])
def test_a_wrong_folder_ends_the_command(kbuild, halves, here, command):
    make_tree(here / "mine", "3.9.2")
    reasons = ("--reasons",) if command == "list-variants" else ()
    source = ("--with-source", "cutlass_3_8=mine")
    answer = kbuild(command, "halves", "--backend", "cpu", "--variant", "*", *source, *reasons)
    if "Torch" in answer.out + answer.err:
        pytest.skip("there is no Torch that any variant fits")
    assert answer.code == 4
    assert "mine: the folder is CUTLASS 3.9.2, not 3.8.0" in answer.err


def test_the_plan_shows_the_headers(kbuild, halves, here):
    tree = make_tree(here / "mine")
    source = ("--with-source", "cutlass_3_8=mine")
    answer = kbuild("plan", "halves", "--variant", "*-cpu-*", *source, "--json")
    assert answer.code == 0
    fitting = [made["toolchain"] for made in answer.json if made["toolchain"]]
    if not fitting:
        pytest.skip("there is no Torch that any variant fits")
    assert dict(fitting[0]["versions"])["cutlass_3_8"].startswith(f"3.8.0 ({tree}, sha256 ")

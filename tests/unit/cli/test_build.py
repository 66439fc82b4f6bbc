"""What `kbuild build` takes from a project and from an option, and what it says once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.pipeline.result import BuildResult
from tests.support.cutlass_trees import make_tree
from tests.support.projects import BINDING, kernel, write_project

WARNING = "no `__all__`"


@pytest.mark.full
def test_a_warning_about_the_project_is_printed_by_one_build(kbuild, demo):
    init = demo / "torch-ext" / "demo" / "__init__.py"
    init.write_text("one = 1\n")
    assert WARNING in kbuild("build", "demo").err
    for _ in range(2):  # unchanged
        assert WARNING not in kbuild("build", "demo").err
    init.write_text("one = 2\n")
    answer = kbuild("build", "demo")
    assert "built" in answer.err
    assert WARNING not in answer.err
    for _ in range(2):
        assert WARNING in kbuild("check-config", "demo").err
    shutil.rmtree(demo / ".kbuild")
    assert WARNING in kbuild("build", "demo").err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], True),
        (["--dev"], False),
        (["--dev", "--backend", "cuda"], False),
        (["--dev", "--torch", "2.13"], True),
        (["--dev", "--variant", "torch-*"], True),
    ],
)
def test_what_is_skipped_is_said_where_it_was_asked_for(
    kbuild, demo, monkeypatch, options, expected
):
    results = (BuildResult("torch-cuda", "skipped", "needs another machine"),)
    monkeypatch.setattr("kbuild.cli.build._build", lambda *_: results)
    answer = kbuild("build", "demo", *options)
    assert ("skipped, needs another machine" in answer.err) is expected


PACKAGE = "demo/torch-ext/demo"


@pytest.fixture
def package(demo: Path) -> Path:
    """The project's package, which ships `.json` files too."""
    file = demo / "build.toml"
    file.write_text(file.read_text().replace("[torch-noarch]", '[torch-noarch]\npyext = ["json"]'))
    return demo / "torch-ext" / "demo"


def test_what_a_link_holds_is_shipped(kbuild: Callable, demo: Path, package: Path) -> None:
    (demo / "shared.json").write_text("{}")
    (package / "data.json").symlink_to("../../shared.json")
    assert kbuild("build", "demo").code == 0
    shipped = demo / "build" / "torch-cuda" / "data.json"
    assert not shipped.is_symlink()
    assert shipped.read_text() == "{}"


@pytest.mark.parametrize("command", ["check-config", "plan", "build"])
def test_what_is_no_file_of_the_project(
    kbuild: Callable, demo: Path, package: Path, tmp_path: Path, command: str
) -> None:
    """And a pipe is no reason to wait for ever."""
    (tmp_path / "secret.json").write_text("secret")
    (package / "data.json").symlink_to(tmp_path / "secret.json")
    (package / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(package / "pipe.py")
    answer = kbuild(command, "demo")
    assert answer.code == 3
    for line in (
        "data.json: `torch-ext/demo/data.json` leads out of the project",
        "pipe.py: `torch-ext/demo/pipe.py` is a named pipe, not a file",
        "zero.json: `torch-ext/demo/zero.json` leads out of the project",
    ):
        assert f"{PACKAGE}/{line}" in answer.err
    assert not (demo / "build").exists()


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

"""What a build takes from a project: files of the project, none too large, and what links hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

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

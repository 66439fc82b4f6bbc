"""Emulators that variables name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.project.variant import System
from kbuild.system.emulator import emulator_variable, find_emulator
from kbuild.system.errors import UsageError

ARM = System("aarch64", "linux")
VARIABLE = "KBUILD_EMULATOR_AARCH64_LINUX"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_without_the_variable(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert emulator_variable(ARM) == VARIABLE
    assert find_emulator(ARM) is None


@pytest.mark.parametrize("name", ["usr/bin/python3", "usr/bin/python3.11"])
def test_words_interpreter_and_paths(tmp_path, monkeypatch, name) -> None:
    qemu, root = program(tmp_path / "qemu"), tmp_path / "root folder"
    python = program(root / name)
    monkeypatch.setenv(VARIABLE, f"{qemu} -L '{root}' -E LD_LIBRARY_PATH=/a:/b")
    emulator = find_emulator(ARM)
    assert emulator.python == python
    words = (str(qemu), "-L", str(root), "-E", "LD_LIBRARY_PATH=/a:/b")
    assert emulator.interpreter == (*words, str(python), "-s")
    assert emulator.paths == (qemu, root, Path("/a"), Path("/b"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{folder}/nothing -L {folder}", "nothing` is not a program"),
        ("{folder}/qemu", "names no system with Python"),
        ("{folder}/qemu -L {folder}/empty", "names no system with Python"),
    ],
)
def test_a_wrong_variable(tmp_path, monkeypatch, value, message) -> None:
    program(tmp_path / "qemu")
    monkeypatch.setenv(VARIABLE, value.format(folder=tmp_path))
    with pytest.raises(UsageError, match=message):
        find_emulator(ARM)

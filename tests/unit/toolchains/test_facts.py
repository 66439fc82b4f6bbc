"""A fact is asked again when what it was read from, or kbuild, is another."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbuild.system.processes import LocalRunner
from kbuild.toolchains import facts
from kbuild.toolchains.facts import FactCache, compiler_facts


class Program:
    """A file, and how often it was asked what is in it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.cache, self.asked = folder / "program", FactCache(folder / "cache"), 0
        self.path.write_text("one")

    def ask(self) -> tuple[facts.Facts, tuple[str, ...]]:
        self.asked += 1
        return {"text": self.path.read_text()}, (str(self.path),)

    def text(self) -> str:
        return str(self.cache.get("what is in it", self.ask)["text"])


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_changed_file_is_asked(program: Program) -> None:
    program.text()
    program.path.write_text("three")
    assert program.text() == "three"


def test_what_changed_while_it_was_asked_is_not_kept(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts.time, "time_ns", lambda: program.path.stat().st_ctime_ns - 1)
    assert [program.text() for _ in range(2)] == ["one", "one"]
    assert program.asked == 2


def test_a_link_that_leads_to_another_compiler(tmp_path: Path) -> None:
    """As `update-alternatives` does it."""
    link, cache, runner = tmp_path / "c++", FactCache(tmp_path / "cache"), LocalRunner()
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name).chmod(0o755)
        os.utime(tmp_path / name, (1e9, 1e9))
    link.symlink_to("first")
    time.sleep(0.05)  # facts of a file that is as young as the question are not kept
    for name in ("first", "second"):
        link.unlink()
        link.symlink_to(name)
        assert compiler_facts(link, cache, runner)["version"] == name

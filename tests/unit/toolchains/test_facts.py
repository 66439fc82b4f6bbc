"""A fact is asked again when what it was read from, or kbuild, is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.toolchains import facts
from kbuild.toolchains.facts import FactCache


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


def test_what_is_known_is_not_asked(program: Program) -> None:
    assert [program.text() for _ in range(2)] == ["one", "one"]
    assert program.asked == 1


def test_a_changed_file_is_asked(program: Program) -> None:
    program.text()
    program.path.write_text("three")
    assert program.text() == "three"


def test_another_kbuild_asks(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program.text()
    monkeypatch.setattr(facts, "package_digest", lambda _: "another")
    program.text()
    assert program.asked == 2
    program.text()
    assert program.asked == 2


def test_what_changed_while_it_was_asked_is_not_kept(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts.time, "time_ns", lambda: program.path.stat().st_ctime_ns - 1)
    assert [program.text() for _ in range(2)] == ["one", "one"]
    assert program.asked == 2

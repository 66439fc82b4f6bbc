from __future__ import annotations

import threading

import pytest

from kbuild.toolchains.once import once


def test_one_of_many_makes_it(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").write_text("whole")

    threads = [threading.Thread(target=once, args=(tmp_path / "a", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (tmp_path / "a" / "file").read_text() == "whole"


def test_a_failure_leaves_nothing(tmp_path):
    def make(folder):
        (folder / "half").write_text("")
        raise ValueError(folder.name)

    with pytest.raises(ValueError, match="a"):
        once(tmp_path / "a", make)
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]

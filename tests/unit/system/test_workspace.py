"""Who may write to a build folder."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from kbuild.system.errors import IncompleteError
from kbuild.system.processes import LocalRunner
from kbuild.system.workspace import Workspace

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors are inherited on Unix")


def test_a_second_build_gives_up_when_its_time_is_over(tmp_path: Path) -> None:
    space = Workspace(tmp_path, "torch213-cxx11-cpu-x86_64-linux")
    asked = iter([False, True])
    with (
        space.locked(),
        pytest.raises(IncompleteError, match="another build"),
        space.locked(lambda: next(asked)),
    ):
        pass
    with space.locked(lambda: True):  # free again, so nothing is waited for
        pass


def test_it_is_said_for_whom_a_build_waits(tmp_path: Path) -> None:
    space = Workspace(tmp_path, "torch213-cxx11-cpu-x86_64-linux")
    said: list[str] = []
    asked = iter([False, False, True])
    with (
        space.locked(say=said.append),
        pytest.raises(IncompleteError),
        space.locked(lambda: next(asked), said.append),
    ):
        pass
    assert said == [f"waiting for another kbuild (pid {os.getpid()})"]


def started(runner: LocalRunner, folder: Path, inherit: tuple[int, ...]) -> threading.Thread:
    """A process that runs for a while, once it runs."""
    argv = ("sh", "-c", f"touch '{folder}/runs'; exec sleep 2")
    child = threading.Thread(target=runner.run, args=(argv,), kwargs={"inherit": inherit})
    child.start()
    while not (folder / "runs").exists():
        time.sleep(0.02)
    return child


def test_whoever_inherits_the_lock_holds_it(tmp_path: Path) -> None:
    space = Workspace(tmp_path, "torch213-cxx11-cpu-x86_64-linux")
    with space.locked() as lock:
        child = started(LocalRunner(), tmp_path, lock)
    with pytest.raises(IncompleteError), space.locked(lambda: True):
        pass
    with space.locked():  # when the process is over
        pass
    child.join()


def test_a_process_that_does_not_inherit_it_holds_nothing(tmp_path: Path) -> None:
    space = Workspace(tmp_path, "torch213-cxx11-cpu-x86_64-linux")
    runner = LocalRunner()
    with space.locked():
        child = started(runner, tmp_path, ())
    with space.locked(lambda: True):
        runner.stop()
    child.join()

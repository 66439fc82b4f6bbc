"""Temporary folders: gone after use, gone after a kill, and never those that somebody uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbuild.system import temporary as module
from kbuild.system.temporary import (
    locked_temporary_folder,
    remove_abandoned_folders,
    temporary_folder,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
HOLDER = """
import subprocess, sys
from kbuild.system.temporary import locked_temporary_folder
with locked_temporary_folder("run") as held:
    (held.folder / "frozen").mkdir()
    (held.folder / "frozen" / "ccXYZ.s").touch()
    (held.folder / "frozen").chmod(0o555)
    child = None
    if sys.argv[1] == "child":
        child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, pass_fds=held.lock)
    print(held.folder, child.pid if child else 0, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@contextmanager
def killed(mode: str = "alone") -> Iterator[tuple[Path, int]]:
    """The folder that a killed process leaves, and its child that goes on."""
    command = (sys.executable, "-c", HOLDER, mode)
    with subprocess.Popen(  # noqa: TID251
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, child = process.stdout.readline().split()
        process.kill()
        process.wait()
        try:
            yield Path(folder), int(child)
        finally:
            if child != "0":
                _end(int(child))


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _lives(pid: int) -> bool:
    """False once the kernel has closed what it had open."""
    try:
        return any(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_folder_is_private_and_gone_afterwards(temporary: Path) -> None:
    with temporary_folder("run") as folder:
        (folder / "below").mkdir()
        assert folder.is_relative_to(temporary)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o711
    assert not [*temporary.iterdir()]


def test_what_a_killed_run_left_goes_with_the_next(temporary: Path) -> None:
    with killed() as (folder, _):
        assert (folder / "frozen" / "ccXYZ.s").exists()
        with temporary_folder("probe"):
            assert not folder.exists()
        assert not [*temporary.iterdir()]


def test_what_a_living_process_uses_stays(temporary: Path) -> None:
    with temporary_folder("run") as first, temporary_folder("run") as second:
        remove_abandoned_folders()
        assert first != second
        assert first.is_dir()
        assert second.is_dir()


def test_a_folder_stays_while_a_child_of_the_killed_run_uses_it(temporary: Path) -> None:
    with killed("child") as (folder, child):
        remove_abandoned_folders()
        assert folder.is_dir()
        _end(child)
        while folder.exists():  # the kernel closes what the child had open
            remove_abandoned_folders()
        assert not [*temporary.iterdir()]


def test_what_an_orphan_used_at_the_beginning_is_gone_at_the_end(temporary: Path) -> None:
    with killed("child") as (folder, child):
        with temporary_folder("run"):
            assert folder.is_dir()
            _end(child)
            while _lives(child):
                time.sleep(0.01)
        assert not [*temporary.iterdir()]


def test_a_lock_that_is_removed_before_it_is_locked_is_not_used(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, seen = module._try_lock, []

    def beaten(handle: int) -> bool:
        if not seen:  # another run looks between the creation of the file and its lock
            remove_abandoned_folders()
        seen.append(handle)
        return take(handle)

    monkeypatch.setattr(module, "_try_lock", beaten)
    with temporary_folder("run") as folder:
        assert len(seen) == 2
        assert (folder.parent / f"{folder.name}.lock").exists()


def test_nothing_is_put_where_another_folder_is_linked_to(temporary: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    (trap / "precious").mkdir(parents=True)
    (temporary / f"kbuild-{os.getuid()}").symlink_to(trap)
    remove_abandoned_folders()
    with locked_temporary_folder("run") as held:
        assert held.folder.parent == temporary
        assert held.lock == ()
    assert [path.name for path in trap.iterdir()] == ["precious"]


def test_a_folder_that_others_can_write_to_is_not_used(temporary: Path) -> None:
    shared = temporary / f"kbuild-{os.getuid()}"
    (shared / "planted").mkdir(parents=True)
    shared.chmod(0o777)
    with temporary_folder("run") as folder:
        assert folder.parent == temporary
    assert (shared / "planted").is_dir()


def test_a_link_in_place_of_a_lock_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    with temporary_folder("run") as held:
        link = held.with_name("run-0badcafe.lock")
        link.symlink_to(tmp_path / "elsewhere")
        remove_abandoned_folders()
        assert not (tmp_path / "elsewhere").exists()
        link.unlink()

"""One process at a time measures on a device, and the next one goes on when that dies."""

from __future__ import annotations

import os
import signal
import sys
import tempfile

import pytest

from kbuild.dsl.tune.probes.processes import device_in_use

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs flock")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"kbuild-devices-{os.getuid()}"


def child_that_holds(name: str) -> int:
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        with device_in_use(name, lambda: None):
            os.write(sink, b".")
            signal.pause()
    os.read(source, 1)
    os.close(source)
    os.close(sink)
    return pid


def test_another_process_is_waited_for_and_its_death_is_its_end():
    pid, waited = child_that_holds("GPU-1"), []

    def tell() -> None:
        waited.append(True)
        os.kill(pid, signal.SIGKILL)

    with device_in_use("GPU-2", tell):
        assert not waited
    with device_in_use("GPU-1", tell):
        assert waited
    os.waitpid(pid, 0)
    with device_in_use("GPU-1", tell):
        assert len(waited) == 1


def test_a_folder_of_somebody_else_is_not_used(folder, monkeypatch):
    folder.mkdir()
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", iter([own, own + 1]).__next__)
    with device_in_use("GPU-1", lambda: None):
        assert not [*folder.iterdir()]

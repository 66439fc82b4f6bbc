"""`kbuild dev`: what follows a save, from a build to tests, in a real project."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tiny_project import QUIET, write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
TIMEOUT_S = 180
TEST = """\
import os
import sys
import time

import tiny


def test_version():
    assert "kbuild" not in sys.modules
    assert tiny.VERSION == 1
    if os.path.exists("slow"):
        time.sleep(600)
"""
PACKAGE = "VERSION = {}\n"


class Loop:
    """A running `kbuild dev` and what it has said."""

    def __init__(self, root: Path) -> None:
        self.root = root
        argv = (sys.executable, "-m", "kbuild", "dev", str(root), "--device", "cpu")
        argv = (*argv, "--python", sys.executable)
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self.process = subprocess.Popen(  # noqa: TID251
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line.rstrip())

    def rest(self) -> list[str]:
        """What was said since, of a process that has ended."""
        self._thread.join()
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def until(self, text: str) -> list[str]:
        """The lines up to one that contains the text."""
        lines, ends = [], time.monotonic() + TIMEOUT_S
        while not lines or text not in lines[-1]:
            try:
                lines.append(self._lines.get(timeout=max(ends - time.monotonic(), 0.01)))
            except queue.Empty:
                pytest.fail(f"no `{text}` in {lines}")
        return lines

    def save(self, path: str, text: str) -> None:
        """As editors do: a new file takes the place of the old one."""
        draft = self.root / f"{path}.tmp"
        draft.write_text(text)
        draft.replace(self.root / path)

    def cycle(self, path: str, text: str) -> str:
        """Save, and give what that leads to."""
        self.save(path, text)
        return "\n".join(self.until("waiting for changes"))


@pytest.fixture
def loop(tmp_path: Path, cache_folder: Path) -> Iterator[Loop]:
    project = write_tiny(tmp_path, "cpu", cache_folder).root
    (project / "tests").mkdir()
    (project / "tests" / "test_it.py").write_text(TEST)
    (project / "torch-ext/tiny/__init__.py").write_text(PACKAGE.format(1))
    running = Loop(project)
    try:
        yield running
    finally:
        running.end()


@pytest.mark.quick
def test_what_follows_a_save(loop: Loop) -> None:
    first = "\n".join(loop.until("waiting for changes"))
    assert "built in" in first
    assert "tests passed" in first
    # A module of the package, which the tests see.
    said = loop.cycle("torch-ext/tiny/__init__.py", PACKAGE.format(2))
    assert "torch-ext/tiny/__init__.py" in said.splitlines()[0]
    assert "tests failed" in said
    assert "assert 2 == 1" in said
    said = loop.cycle("torch-ext/tiny/__init__.py", PACKAGE.format(1))
    assert "tests passed" in said
    # A mistake in C++: no tests, and the place.
    said = loop.cycle("cpu/quiet.cpp", f"{QUIET}\nint f() {{ return g(); }}\n")
    assert "cpu/quiet.cpp:" in said
    assert "was not declared" in said
    assert said.count("was not declared") == 1  # said once
    assert "cpu/quiet.cpp failed: " in said
    assert "testing" not in said
    # Only a test: nothing is built.
    said = loop.cycle("tests/test_it.py", f"{TEST}\n")
    assert "cpu/quiet.cpp" in said  # nor is the failed build forgotten
    said = loop.cycle("cpu/quiet.cpp", f"{QUIET}\nint f() {{ return 1; }}\n")
    assert "tests passed" in said
    assert "  cpu/quiet.cpp: " in said
    assert "  torch-ext/binding.cpp" not in said
    said = loop.cycle("tests/test_it.py", f"{TEST}\n\n")
    assert "tests passed" in said
    assert "built" not in said
    # build.toml with a mistake, and without.
    text = (loop.root / "build.toml").read_text()
    said = loop.cycle("build.toml", text.replace("edition = 5", "editon = 5"))
    assert "build.toml:4" in said
    assert "tests passed" in loop.cycle("build.toml", text)
    # A file that goes, and comes back.
    (loop.root / "cpu/quiet.cpp").unlink()
    said = "\n".join(loop.until("waiting for changes"))
    assert "quiet.cpp" in said
    assert "testing" not in said
    assert "tests passed" in loop.cycle("cpu/quiet.cpp", QUIET)
    # Tests that take long end when a file is saved; so does the command with Ctrl-C.
    loop.save("slow", "")
    loop.until("testing")
    (loop.root / "slow").unlink()
    said = "\n".join(loop.until("waiting for changes"))
    assert "tests stopped" in said
    assert "tests passed" in said
    os.killpg(loop.process.pid, signal.SIGINT)  # as a terminal does
    assert loop.process.wait(TIMEOUT_S) == 0
    assert loop.rest() == []


@pytest.mark.quick
def test_a_project_is_needed(tmp_path: Path) -> None:
    running = Loop(tmp_path)
    running.until("build.toml")
    assert running.process.wait(TIMEOUT_S) != 0
    running.end()

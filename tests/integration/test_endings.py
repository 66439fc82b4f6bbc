"""A build that is told to end, and one that is killed: real processes, real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]
SLOW = """#!/bin/sh
case "$*" in
  *relu_cpu.cpp)
    touch "$TMPDIR/cc$$.s"
    echo "start $$ $TMPDIR" >> {diary}
    sleep 4
    {compiler} "$@"
    echo "end $$" >> {diary};;
  *) exec {compiler} "$@";;
esac
"""


class Slow:
    """A compiler that takes its time for one source, and keeps a diary."""

    def __init__(self, bench: CommandProject) -> None:
        self.bench = bench
        self.diary = bench.cache / "diary"
        self.program = bench.cache / "slow-c++"
        self.program.write_text(SLOW.format(diary=self.diary, compiler=shutil.which("c++")))
        self.program.chmod(0o755)
        self.temporary = bench.cache / "tmp"
        self.temporary.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "KBUILD_CACHE_DIR": str(self.bench.cache),
            "KBUILD_TOOLCHAIN": "host",
            "KBUILD_CACHE": "off",
            "NO_COLOR": "1",
            "CXX": str(self.program),
            "TMPDIR": str(self.temporary),
        }

    def building(self) -> subprocess.Popen[str]:  # noqa: TID251
        """A kbuild whose slow compiler has just started."""
        process = subprocess.Popen(  # noqa: TID251
            (sys.executable, "-m", "kbuild", "build", "--backend", "cpu", "-q"),
            cwd=self.bench.root,
            env={**os.environ, **self.environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        while not self.lines and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()[1]
        return process

    @property
    def lines(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.is_file() else []

    @property
    def compiler(self) -> int:
        return int(self.lines[0].split()[1])

    @property
    def leaves(self) -> Path:
        """A temporary file of the compiler's."""
        _, pid, folder = self.lines[0].split()
        return Path(folder, f"cc{pid}.s")


def lives(pid: int) -> bool:
    """False for a process that is over, its parent's interest in it aside."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_ends_the_compilers_as_well(
    example: Callable[[str], CommandProject], number: int, code: int, word: str
) -> None:
    slow = Slow(example("relu-stable-abi"))
    process = slow.building()
    assert lives(slow.compiler)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (code, f"{word}\n")
    assert not lives(slow.compiler)
    assert not any(line.startswith("end") for line in slow.lines)


def test_nobody_builds_in_a_tree_that_a_killed_build_still_writes_to(
    example: Callable[[str], CommandProject],
) -> None:
    slow = Slow(example("relu-stable-abi"))
    process = slow.building()
    process.kill()
    process.communicate()
    assert lives(slow.compiler)
    [folder] = slow.temporary.glob("kbuild-*/run-*/")
    left = slow.leaves
    assert left.is_relative_to(folder)
    assert left.exists()
    slow.bench.kbuild("build", "--backend", "cpu", env=slow.environment)
    assert [line.split()[0] for line in slow.lines] == ["start", "end", "start", "end"]
    assert [*slow.temporary.iterdir()] == []

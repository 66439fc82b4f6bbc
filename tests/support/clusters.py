"""Clusters on loopback, of real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

Process: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251


def start(folder: Path, log: str, *arguments: str) -> Process:
    environ = {**os.environ, "KBUILD_CACHE_DIR": str(folder), "KBUILD_TOOLCHAIN": "host"}
    with (folder / log).open("w") as file:
        return subprocess.Popen(  # noqa: TID251
            (sys.executable, "-m", "kbuild", *arguments),
            cwd=folder,
            env={**environ, "NO_COLOR": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )


def wait_for(path: Path, pattern: str, process: Process) -> re.Match[str]:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        match = re.search(pattern, path.read_text())
        if match is not None:
            return match
        time.sleep(0.05)
    raise AssertionError(f"no `{pattern}` in {path.read_text()}")


@contextmanager
def cluster(
    folder: Path, workers: int, pythons: Sequence[Path] = ()
) -> Iterator[tuple[str, list[Process]]]:
    """The address of a cluster of workers with one processor, and their processes.

    Args:
        folder: where their folders and logs go.
        workers: how many.
        pythons: the interpreter of each for tests.
    """
    folder.mkdir()
    log = folder / "scheduler.log"
    processes = [start(folder, log.name, "cluster", "start", "--workers", "0", "--port", "0")]
    try:
        address = wait_for(log, r"cluster: (tls://\S+);", processes[0])[1]
        for number in range(workers):
            arguments = ("cluster", "worker", address, "--processors", "0", "--memory", "2G")
            if pythons:
                arguments += ("--name", f"w{number}", "--python", str(pythons[number]))
            processes.append(start(folder, f"worker{number}.log", *arguments))
        yield address, processes[1:]
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()

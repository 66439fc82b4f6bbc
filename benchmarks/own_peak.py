"""Running kbuild as a user does, and how much memory its own process took: `VmHWM` at its end.

The compilers and interpreters that it starts are processes of their own and do not count here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 150.0
"""MB."""
# Written when the interpreter ends: the kernel's high-water mark of this very program.
_NOTED = """
import atexit, sys
def note(target=sys.argv.pop(1)):
    with open("/proc/self/status") as status, open(target, "w") as file:
        file.write(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
atexit.register(note)
"""
_KBUILD = 'import runpy; runpy.run_module("kbuild", run_name="__main__", alter_sys=True)'


@dataclass(frozen=True)
class Ran:
    """One command that succeeded."""

    answer: Any
    """What it said as JSON."""
    wall: float
    peak: float
    """MB of kbuild's own process."""


def kbuild(arguments: Sequence[str], env: Mapping[str, str], program: str = _KBUILD) -> Ran:
    """Run `kbuild ARGUMENTS --json`, by that Python program; ends the script when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "peak"
        began = time.perf_counter()
        done = subprocess.run(  # noqa: TID251
            [sys.executable, "-c", _NOTED + program, str(note), *arguments, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env=dict(env),
        )
        wall = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"kbuild {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
        return Ran(json.loads(done.stdout), wall, int(note.read_text()) * 1024 / 1e6)


def target(what: str, *runs: Ran) -> dict[str, Any]:
    """A row for the table."""
    peak = max(run.peak for run in runs)
    return {"what": f"peak of kbuild itself, {what}, MB", "value": peak, "target": LIMIT}

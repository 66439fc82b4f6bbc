"""Emulators of other processors: `KBUILD_EMULATOR_AARCH64_LINUX="qemu-aarch64-static -L DIR"`.

Kernels for another processor are loaded and tested in one where it is named. `DIR` is the root of a
system of that processor, whose Python runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kbuild.system.errors import UsageError

_PYTHONS = ("usr/local/bin/python3", "usr/bin/python3", "usr/bin/python3.[0-9]*")


@dataclass(frozen=True)
class Emulator:
    """A command that runs programs of another processor."""

    command: tuple[str, ...]
    """Words in front of a program of that processor."""
    python: Path

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The words that start Python, without the user's packages: they are for this machine."""
        return (*self.command, str(self.python), "-s")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths in its words, also in lists such as `LD_LIBRARY_PATH=/a:/b`."""
        parts = (part for word in self.command for part in word.replace("=", ":").split(":"))
        return tuple(path for path in map(Path, parts) if path.is_absolute())


def emulator_variable(system: object) -> str:
    """The variable that names the emulator of a system."""
    return f"KBUILD_EMULATOR_{str(system).upper().replace('-', '_')}"


def find_emulator(system: object) -> Emulator | None:
    """The emulator of a system; None when its variable is not set.

    Raises:
        UsageError: the variable names no program, or no system with Python.
    """
    variable = emulator_variable(system)
    command = shlex.split(os.environ.get(variable, ""))
    if not command:
        return None
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{variable}: `{command[0]}` is not a program")
    roots = [Path(root) for flag, root in pairwise(command) if flag == "-L"]
    pythons = (path for root in roots for name in _PYTHONS for path in sorted(root.glob(name)))
    python = next((path for path in pythons if os.access(path, os.X_OK)), None)
    if python is None:
        raise UsageError(
            f"{variable}: it names no system with Python",
            hint="write `-L DIR`, where DIR/usr/bin/python3 is there",
        )
    return Emulator((program, *command[1:]), python)

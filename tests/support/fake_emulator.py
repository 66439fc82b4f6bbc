"""An emulator that is none: it starts this machine's own interpreter."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

OTHER_CPU = "x86_64" if platform.machine() == "aarch64" else "aarch64"
"""A processor that this machine does not have."""


def fake_emulator(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name one in its variable; the file that it notes its command lines in."""
    notes, python = folder / "started", folder / "root" / "usr" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    # Started through a link, the interpreter would look for its packages beside that.
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    program = folder / "emulator"
    program.write_text(f'#!/bin/sh\nprintf "%s " "$@" >>"{notes}"\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    variable = f"KBUILD_EMULATOR_{OTHER_CPU.upper()}_LINUX"
    monkeypatch.setenv(variable, f"{program} -L {folder / 'root'}")
    return notes

"""What starts before every compiler command loads next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SLOW = {"pathlib", "typing", "dataclasses", "json", "re", "signal", "hashlib", "subprocess"}
OUTSIDE_OF_A_RUN = ["kbuild", "kbuild.system", "kbuild.system.unit_settings"]
IN_A_RUN = [
    "kbuild",
    "kbuild.build",
    "kbuild.build.unit",
    *(f"kbuild.build.unit.{name}" for name in ("cache", "command", "compiler", "inputs", "job")),
    "kbuild.system",
    *(
        f"kbuild.system.{name}"
        for name in ("atomic", "cache", "file_state", "memory_governor", "unit_settings")
    ),
]


@pytest.mark.skipif(sys.platform == "win32", reason="compilers get no launcher there")
@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        ("kbuild.system.unit_settings", OUTSIDE_OF_A_RUN),
        ("kbuild.system.unit_settings, kbuild.build.unit.job", IN_A_RUN),
    ],
)
def test_few_modules_are_loaded(imported: str, expected: list[str]) -> None:
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {imported}; print(*sys.modules)"
    command = (sys.executable, "-I", "-S", "-B", "-c", code, str(ROOT))
    loaded = set(subprocess.check_output(command, text=True).split())
    assert sorted(name for name in loaded if name.partition(".")[0] == "kbuild") == expected
    assert not loaded & SLOW

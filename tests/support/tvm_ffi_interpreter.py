"""Interpreters that have TVM-FFI."""

from __future__ import annotations

import site
import sys
from pathlib import Path

import pytest

from tests.support.command_project import run


def fetch(target: Path, *requirements: str) -> Path:
    """Install distributions into a folder of their own; skips when there are none."""
    done = run(
        (sys.executable, "-m", "pip", "install", "-q", "--target", str(target), *requirements),
        cwd=target.parent,
    )
    if done.returncode:
        pytest.skip(f"the package index has no {requirements}: {done.stderr.strip()[-200:]}")
    return target


def interpreter(folder: Path) -> Path:
    """An interpreter with TVM-FFI, and whatever this one has."""
    root = folder / "venv"
    done = run((sys.executable, "-m", "venv", "--without-pip", str(root)), cwd=folder)
    assert done.returncode == 0, done.stderr
    (packages,) = root.glob("lib/python3.*/site-packages")
    fetch(packages, "--no-deps", "apache-tvm-ffi>=0.1,<0.2")
    own = [place for place in site.getsitepackages() if Path(place).is_dir()]
    (packages / "outer.pth").write_text("\n".join(own))
    return root / "bin" / "python"

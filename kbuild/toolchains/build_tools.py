"""The C++ compiler of this machine, and cmake and ninja of known versions from wheels."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from functools import partial
from pathlib import Path

from kbuild.project.variant import System, host_system
from kbuild.system.errors import ToolchainError, install_command

CXX_CANDIDATES = ("c++", "g++", "clang++")
OLDEST_GCC, _NEWEST_GCC = 11, 20
"""Oldest release of GCC that compiles Torch's headers, and the newest that is looked for."""
INSTALL_CXX = "apt install g++  (or your distribution's C++ compiler package)"


def _find(name: str) -> Path:
    # Where wheels keep the program itself; a script in `bin/` would start Python first.
    spec = importlib.util.find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    package_places = [Path(root, "data", "bin") for root in roots or ()]
    places = [*package_places, Path(sysconfig.get_path("scripts")), Path(sys.prefix, "bin")]
    for place in places:
        if _is_program(place / name):
            return place / name
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(f"no {name} found", hint=install_command(name))
    return Path(path)


# Each is a function: the program of the wheel, or the one on PATH; `ToolchainError` without one.
cmake, ninja = (partial(_find, name) for name in ("cmake", "ninja"))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def cross_package(system: System) -> str:
    """The distribution's package with the compiler for another system, as Debian names it."""
    return f"g++-{system.cpu.replace('_', '-')}-linux-gnu"


def cross_programs(system: System) -> tuple[str, ...]:
    """Names of the compiler for another system: without a release, then the newest first."""
    name = f"{system.cpu}-linux-gnu-g++"
    return (name, *(f"{name}-{release}" for release in range(_NEWEST_GCC, OLDEST_GCC - 1, -1)))


def find_cross_cxx(system: System) -> Path | None:
    """The first of `cross_programs` on PATH."""
    program = next(filter(None, map(shutil.which, cross_programs(system))), None)
    return Path(program) if program else None


def find_cxx(system: str | None = None) -> Path:
    """The C++ compiler: `$CXX`, else the first of `c++`, `g++`, `clang++` on PATH.

    For another `system` than this machine's, see `find_cross_cxx`.

    Raises:
        ToolchainError: there is none.
    """
    if system is not None and system != str(host_system()):
        cross = find_cross_cxx(System.parse(system))
        if cross is None:
            hint = f"apt install {cross_package(System.parse(system))}"
            raise ToolchainError(f"no C++ compiler for {system} found", hint=hint)
        return cross
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else CXX_CANDIDATES:
        program = shutil.which(name)
        if program:
            return Path(program)
    looked = f"`{asked}` (from $CXX)" if asked else ", ".join(CXX_CANDIDATES)
    raise ToolchainError(f"no C++ compiler found; looked for {looked}", hint=INSTALL_CXX)

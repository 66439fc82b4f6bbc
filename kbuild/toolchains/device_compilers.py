"""Device compilers on this machine, and which C++ compiler an nvcc accepts.

`crt/host_config.h` of a CUDA toolkit names the newest g++ and clang++. `crt/math_functions.h`
declares `cospi` and others with an exception specification once CUDA knows that glibc 2.41
declares them too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.backends.base import DeviceCompilerSearch
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.version import Version
from kbuild.toolchains.build_tools import OLDEST_GCC
from kbuild.toolchains.facts import FactCache, Facts, compiler_facts
from kbuild.toolchains.manylinux.compiler import glibc_release


@dataclass(frozen=True)
class DeviceCompiler:
    """A device compiler that was found."""

    program: Path
    version: Version
    entries: tuple[tuple[str, str], ...]
    """CMake cache entries that make a generated project use it."""
    env: tuple[tuple[str, str], ...] = ()
    has_host_compiler: bool = False
    """True if another compiler compiles the host's part of units, see `nvcc_host_compiler`."""

    @property
    def root(self) -> Path:
        """The installation's folder."""
        return self.program.parents[1]

    def fits(self, toolkit: str) -> bool:
        """True when it is the release that a variant names, patch level aside."""
        wanted = Version.parse(toolkit)
        return (self.version.major, self.version.minor) == (wanted.major, wanted.minor)


DeviceCompilerFinder = Callable[[str, FactCache, Runner], "DeviceCompiler | None"]


def find_device_compiler(backend: str, cache: FactCache, runner: Runner) -> DeviceCompiler | None:
    """The backend's compiler on this machine; None when there is none."""
    search = BACKENDS.get(backend).device_compiler
    if search is None:
        return None
    # A variable that names an installation goes before PATH.
    named = next(filter(None, map(os.environ.get, search.home_variables)), None)
    if named:
        return inspect_compiler(search, Path(named, "bin", search.program), cache, runner)
    on_path = shutil.which(search.program)
    if on_path is None and not search.usual_root:
        return None
    program = Path(on_path or f"{search.usual_root}/bin/{search.program}")
    # An installation is named by its own folder, not by that of a link to the program.
    is_rooted = bool(search.home_variables)
    return inspect_compiler(search, program.resolve() if is_rooted else program, cache, runner)


def inspect_compiler(
    search: DeviceCompilerSearch, program: Path, cache: FactCache, runner: Runner
) -> DeviceCompiler | None:
    """The compiler at a path; None for another program. `bin`'s parent is its installation."""
    if not os.access(program, os.X_OK):
        return None
    release = re.search(search.release, compiler_facts(program, cache, runner)["text"])
    if release is None:
        return None
    places = {"program": str(program), "root": str(program.parents[1])}
    cmake, env = (
        tuple((name, value.format(**places)) for name, value in pairs)
        for pairs in (search.cmake, search.env)
    )
    version = Version.parse(release[1])
    return DeviceCompiler(program, version, cmake, env, search.has_host_compiler)


_CROSS_PREFIX = re.compile(r"\w+-linux-gnu-(?=g\+\+)")
_GCC_LIMIT = re.compile(r"^#if __GNUC__ > (\d+)$", re.MULTILINE)
_CLANG_LIMIT = re.compile(r"^#if \(__clang_major__ >= (\d+)\)", re.MULTILINE)
_KNOWS_COSPI = "__NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER"
_FIRST_COSPI = (2, 41)
_VERSION_MACRO = re.compile(r"#define (__GNUC__|__clang_major__) (\d+)")


@dataclass(frozen=True)
class NvccLimits:
    """Limits of a toolkit's nvcc; None where its headers do not say."""

    gcc: int | None
    """Newest major release of g++."""
    clang: int | None
    """Newest major release of clang++."""
    glibc: bool
    """False when glibc 2.41 and later cannot be compiled against."""


@dataclass(frozen=True)
class _HostCompiler:
    name: str
    major: int


@lru_cache(maxsize=8)
def nvcc_limits(root: Path) -> NvccLimits:
    """The limits of the toolkit at `root`."""
    config, functions = (_read_header(root / "include" / "crt" / name) for name in _LIMIT_HEADERS)
    gcc, clang = _GCC_LIMIT.search(config), _CLANG_LIMIT.findall(config)
    return NvccLimits(
        int(gcc[1]) if gcc else None,
        # The header names the first release that it refuses.
        int(clang[-1]) - 1 if clang else None,
        not functions or _KNOWS_COSPI in functions,
    )


_LIMIT_HEADERS = ("host_config.h", "math_functions.h")


def nvcc_host_compiler(root: Path, cxx: Path, cache: FactCache, runner: Runner) -> Path:
    """`cxx` if nvcc of the toolkit takes it; else the newest `g++-N` on PATH that it takes.

    For a cross compiler such as `aarch64-linux-gnu-g++`, others of the same prefix are looked for.

    Raises:
        ToolchainError: there is none, or the C library is too new for the toolkit.
    """
    limits = nvcc_limits(root)
    release = None if limits.glibc else glibc_release(cxx, cache, runner)
    if release is not None and release >= _FIRST_COSPI:
        here = ".".join(map(str, release))
        raise ToolchainError(
            f"the headers of the CUDA toolkit at {root} clash with glibc {here}",
            hint="both declare `cospi`, differently; use a machine with a C library before "
            f"{'.'.join(map(str, _FIRST_COSPI))}, or a newer CUDA release",
        )
    compiler = _ask_host_compiler(cxx, cache, runner)
    bound = limits.clang if compiler.name == "clang++" else limits.gcc
    if bound is None or compiler.major <= bound:
        return cxx
    prefix = _CROSS_PREFIX.match(cxx.name)
    name = f"{prefix[0] if prefix else ''}g++"
    newest = limits.gcc or OLDEST_GCC
    for major in range(newest, OLDEST_GCC - 1, -1):
        other = shutil.which(f"{name}-{major}")
        if other:
            return Path(other)
    raise ToolchainError(
        f"nvcc of {root} takes {compiler.name} up to {bound}, and `{cxx}` is {compiler.major}",
        hint=f"install {name}-{newest} beside it: the first of {name}-{newest} to "
        f"{name}-{OLDEST_GCC} on PATH is used for CUDA's units",
    )


def _read_header(path: Path) -> str:
    """A header; empty when the toolkit keeps its headers elsewhere."""
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def _ask_host_compiler(cxx: Path, cache: FactCache, runner: Runner) -> _HostCompiler:
    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(cxx), "-dM", "-E", "-x", "c++", "/dev/null"))
        return dict(_VERSION_MACRO.findall(done.output)) if done.ok else {}, (str(cxx),)

    facts = cache.get(f"release of {cxx}", ask)
    if "__clang_major__" in facts:
        return _HostCompiler("clang++", int(facts["__clang_major__"]))
    return _HostCompiler("g++", int(facts.get("__GNUC__", 0)))

"""Which C++ compiler nvcc may use: its toolkit's headers say what they were made for.

`crt/host_config.h` names the newest g++ and clang++. `crt/math_functions.h` declares `cospi` and
others with an exception specification since CUDA knows that glibc 2.41 declares them as well.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.facts import FactCache, Facts
from kbuild.toolchains.manylinux.compiler import glibc_release

OLDEST_GCC = 11
"""Torch's headers need it."""
_GCC = re.compile(r"^#if __GNUC__ > (\d+)$", re.MULTILINE)
_CLANG = re.compile(r"^#if \(__clang_major__ >= (\d+)\)", re.MULTILINE)
_KNOWS_COSPI = "__NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER"
_FIRST_COSPI = (2, 41)
_MACRO = re.compile(r"#define (__GNUC__|__clang_major__) (\d+)")


@dataclass(frozen=True)
class Limits:
    """What a toolkit's nvcc accepts; None where its headers do not say."""

    gcc: int | None
    """Newest major release of g++."""
    clang: int | None
    """Newest major release of clang++."""
    glibc: bool
    """False when glibc 2.41 and later cannot be compiled against."""


@dataclass(frozen=True)
class _Compiler:
    name: str
    major: int


@lru_cache(maxsize=8)
def limits_of(root: Path) -> Limits:
    """The limits of the toolkit at `root`."""
    config, functions = (_read(root / "include" / "crt" / name) for name in _HEADERS)
    gcc, clang = _GCC.search(config), _CLANG.findall(config)
    return Limits(
        int(gcc[1]) if gcc else None,
        int(clang[-1]) - 1 if clang else None,
        not functions or _KNOWS_COSPI in functions,
    )


_HEADERS = ("host_config.h", "math_functions.h")


def host_compiler(root: Path, cxx: Path, cache: FactCache, runner: Runner) -> Path:
    """`cxx` if nvcc of the toolkit takes it; else the newest `g++-N` on PATH that it takes.

    Raises:
        ToolchainError: there is none, or the C library is too new for the toolkit.
    """
    limits = limits_of(root)
    _refuse_glibc(limits, root, cxx, cache, runner)
    found = _ask(cxx, cache, runner)
    bound = limits.clang if found.name == "clang++" else limits.gcc
    if bound is None or found.major <= bound:
        return cxx
    for major in range(limits.gcc or 0, OLDEST_GCC - 1, -1):
        other = shutil.which(f"g++-{major}")
        if other:
            return Path(other)
    raise ToolchainError(
        f"nvcc of {root} takes {found.name} up to {bound}, and `{cxx}` is {found.major}",
        hint=f"install g++-{limits.gcc} beside it: the first of g++-{limits.gcc} to "
        f"g++-{OLDEST_GCC} on PATH is used for CUDA's units",
    )


def _refuse_glibc(limits: Limits, root: Path, cxx: Path, cache: FactCache, runner: Runner) -> None:
    release = None if limits.glibc else glibc_release(cxx, cache, runner)
    if release is not None and release >= _FIRST_COSPI:
        here = ".".join(map(str, release))
        raise ToolchainError(
            f"the headers of the CUDA toolkit at {root} clash with glibc {here}",
            hint="both declare `cospi`, differently; use a machine with a C library before "
            f"{'.'.join(map(str, _FIRST_COSPI))}, or a newer CUDA release",
        )


def _read(path: Path) -> str:
    """A header; empty when the toolkit keeps its headers elsewhere."""
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def _ask(cxx: Path, cache: FactCache, runner: Runner) -> _Compiler:
    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = runner.run((str(cxx), "-dM", "-E", "-x", "c++", "/dev/null"))
        return dict(_MACRO.findall(done.output)) if done.ok else {}, (str(cxx.resolve()),)

    facts = cache.get(f"release of {cxx}", ask)
    if "__clang_major__" in facts:
        return _Compiler("clang++", int(facts["__clang_major__"]))
    return _Compiler("g++", int(facts.get("__GNUC__", 0)))

"""What this machine has for building kernels, what is missing, and the one command that mends it.

Nothing is imported to find out: programs are asked for their version, packages are located.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.build_tools import cmake, ninja
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import choose_python, find_cxx

State = Literal["ok", "missing", "optional"]
OLDEST_GCC = 11
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
_GIGABYTE = 1e9
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Item:
    """One thing that is there or not."""

    name: str
    state: State
    """`optional` when it is missing and most builds do without."""
    found: str
    """Version and place; empty when missing."""
    needed_for: str
    mend: str = ""
    """A command, when something is to be done."""

    def to_json(self) -> dict[str, Any]:
        """The item as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Tool:
    """A program that some builds need."""

    name: str
    programs: tuple[str, ...]
    needed_for: str
    mend: str
    used: bool = False
    """False as long as no toolchain of kbuild makes use of it."""


OPTIONAL_TOOLS = (
    Tool("git", ("git",), "op names that follow commits", "apt-get install git", used=True),
    Tool(
        "CUDA",
        ("nvcc",),
        "CUDA kernels without wheels: --toolchain host, --dev",
        "set CUDA_HOME to a toolkit",
        used=True,
    ),
    Tool(
        "ROCm",
        ("hipcc", "amdclang++"),
        "ROCm kernels; experimental without: --toolchain debian-hip",
        "install ROCm, or set ROCM_PATH to it",
        used=True,
    ),
    Tool("oneAPI", ("icpx",), "XPU kernels", "source oneAPI's setvars.sh", used=True),
    Tool("Xcode", ("xcrun",), "Metal kernels, on macOS", "xcode-select --install"),
    Tool("Nix", ("nix",), "builds in a sandbox", ""),
)


def diagnose(python: Path | None, cache: Path, runner: Runner) -> Iterator[Item]:
    """Everything worth knowing, what builds cannot do without first.

    Args:
        python: the interpreter to build against; the one that builds use when None.
        cache: kbuild's cache folder.
        runner: asks programs for their version.
    """
    yield Item("Python", "ok", f"{_dotted(sys.version_info[:3])} {sys.executable}", "kbuild")
    yield _compiler(runner)
    yield _build_tool("cmake", runner)
    yield _build_tool("ninja", runner)
    yield from _packages(choose_python(python, FactCache(cache), runner))
    for tool in OPTIONAL_TOOLS:
        yield _optional(tool, runner)
    yield _cuda_12(cache, runner)
    yield Item("cache", "ok", f"{_size(cache)} {cache}", "not asking and compiling twice")


def _compiler(runner: Runner) -> Item:
    purpose, mend = "compiling kernels", "apt-get install g++"
    try:
        program = find_cxx()
    except ToolchainError:
        return Item("C++ compiler", "missing", "", purpose, mend)
    version = _version(program, runner)
    is_gcc = "clang" not in program.name and "clang" not in str(program.resolve())
    old = is_gcc and sys.platform == "linux" and _major(version) < OLDEST_GCC
    if old:
        return Item("C++ compiler", "missing", f"{version} {program}: too old", purpose, mend)
    return Item("C++ compiler", "ok", f"{version} {program}", purpose)


def _build_tool(name: str, runner: Runner) -> Item:
    try:
        program = {"cmake": cmake, "ninja": ninja}[name]()
    except ToolchainError:
        return Item(name, "missing", "", "compiling kernels", f"{_pip()} install {name}")
    return Item(name, "ok", f"{_version(program, runner)} {program}", "compiling kernels")


def _packages(facts: Mapping[str, Any]) -> Iterator[Item]:
    """What the interpreter that is built against has."""
    python = facts["python"]["executable"]
    torch = facts["torch"] or {}
    headers, tvm = facts["python"]["include_dir"], facts["tvm_ffi"] or {}
    rows = (
        ("Python headers", headers, "compiling bindings", "apt-get install python3-dev", True),
        ("torch", _versioned(torch), "building for Torch", f"{_pip(python)} install torch", True),
        (
            "kernels",
            facts["kernels"],
            "loading and testing",
            f"{_pip(python)} install kernels",
            True,
        ),
        (
            "TVM-FFI",
            _versioned(tvm),
            "kernels with [tvm-ffi]",
            f"{_pip(python)} install apache-tvm-ffi",
            False,
        ),
    )
    for name, found, purpose, mend, required in rows:
        if found:
            yield Item(name, "ok", str(found), purpose)
        else:
            yield Item(name, "missing" if required else "optional", "", purpose, mend)


def _optional(tool: Tool, runner: Runner) -> Item:
    program = next(filter(None, map(shutil.which, tool.programs)), None)
    purpose = tool.needed_for if tool.used else f"{tool.needed_for}, which kbuild does not yet do"
    if program is None:
        return Item(tool.name, "optional", "", purpose, tool.mend if tool.used else "")
    note = "" if tool.used else " (not used yet)"
    return Item(tool.name, "ok", f"{_version(Path(program), runner)} {program}{note}", purpose)


def _cuda_12(cache: Path, runner: Runner) -> Item:
    """CUDA 12 has no compiler in wheels: toolkits that are installed, else Debian's nvcc."""
    from kbuild.matrix.data import entries
    from kbuild.toolchains.debian_nvcc import licence
    from kbuild.toolchains.debian_nvcc.pins import pins
    from kbuild.toolchains.local_cuda import LocalToolkits

    local, purpose = LocalToolkits(FactCache(cache), runner), "CUDA 12 kernels"
    releases = {str(entry.backend_version) for entry in entries() if entry.backend == "cuda"}
    found = [
        f"{release} {local.provide(release).root}"
        for release in sorted(releases)
        if local.refuses(release) is None
    ]
    if found:
        return Item("CUDA 12", "ok", ", ".join(found), purpose)
    if licence.is_accepted(os.environ):
        return Item("CUDA 12", "ok", f"nvcc {pins().title}, its licence accepted", purpose)
    mend = f"install it and set CUDA_HOME, or accept {licence.NAME} with {licence.VARIABLE}"
    return Item("CUDA 12", "optional", "", purpose, mend)


def _version(program: Path, runner: Runner) -> str:
    done = runner.run((str(program), "--version"))
    match = _VERSION.search(done.output)
    return match[0] if match and done.ok else "version unknown"


def _versioned(facts: Mapping[str, Any]) -> str:
    return f"{facts['version']} {facts['root']}" if facts else ""


def _major(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else OLDEST_GCC


def _dotted(parts: tuple[object, ...]) -> str:
    return ".".join(map(str, parts))


def _pip(python: str = sys.executable) -> str:
    return f"{python} -m pip"


def _size(folder: Path) -> str:
    total = sum(
        os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 - many files
        for base, _, files in os.walk(folder)
        for name in files
    )
    return f"{total / _GIGABYTE:.1f} GB" if total > _GIGABYTE else f"{total / _MEGABYTE:.1f} MB"

"""Everything that is looked at, in order.

Nothing is imported to find out: programs are asked for their version, packages are located.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.checks.readers.sandbox import PROGRAM
from kbuild.diagnosis.compilers import Compilers
from kbuild.diagnosis.distribution import OS_RELEASE, Distribution, this_distribution
from kbuild.diagnosis.item import Item, version_of
from kbuild.diagnosis.nix import nix_items
from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.build_tools import cmake, ninja
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import choose_python

_GIGABYTE = 1e9
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Tool:
    """A program that some builds need."""

    name: str
    programs: tuple[str, ...]
    needed_for: str
    mend: str
    used: bool = False
    """False as long as no toolchain of kbuild makes use of it."""
    without: str = ""
    """What can be done while it is missing."""


OPTIONAL_TOOLS = (
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
    Tool(
        "oneAPI",
        ("icpx",),
        "XPU kernels",
        "source oneAPI's setvars.sh",
        used=True,
        without="`kbuild check --backend xpu` type-checks their sources",
    ),
    Tool(
        "Xcode",
        ("xcrun",),
        "Metal kernels, on macOS",
        "xcode-select --install",
        without="`kbuild check --backend metal` resolves their includes",
    ),
)


def diagnose(
    python: Path | None, cache: Path, runner: Runner, os_release: Path = OS_RELEASE
) -> Iterator[Item]:
    """Everything worth knowing, what builds cannot do without first.

    Args:
        python: the interpreter to build against; the one that builds use when None.
        cache: kbuild's cache folder.
        runner: asks programs for their version.
        os_release: names the distribution, whose commands are given.
    """
    yield Item("Python", "ok", f"{_dotted(sys.version_info[:3])} {sys.executable}", "kbuild")
    distribution, facts = this_distribution(os_release), FactCache(cache)
    yield from Compilers(facts, runner, distribution).items()
    yield _build_tool("cmake", runner)
    yield _build_tool("ninja", runner)
    yield from _packages(choose_python(python, facts, runner), distribution)
    yield _optional(_git(distribution), runner)
    for tool in (*OPTIONAL_TOOLS, *_sandbox(distribution)):
        yield _optional(tool, runner)
    yield _cuda_12(cache, runner)
    yield from nix_items(cache, runner)
    yield Item("cache", "ok", f"{_size(cache)} {cache}", "not asking and compiling twice")


def _build_tool(name: str, runner: Runner) -> Item:
    try:
        program = {"cmake": cmake, "ninja": ninja}[name]()
    except ToolchainError:
        return Item(name, "missing", "", "compiling kernels", f"{_pip()} install {name}")
    return Item(name, "ok", f"{version_of(program, runner)} {program}", "compiling kernels")


def _git(distribution: Distribution) -> Tool:
    purpose = "op names that follow commits, and headers from git"
    return Tool("git", ("git",), purpose, distribution.install("git"), used=True)


def _sandbox(distribution: Distribution) -> Iterator[Tool]:
    """Only Linux has it."""
    if sys.platform == "linux":
        purpose = "loading kernels in a sandbox: no network, no home"
        install = distribution.install("bubblewrap")
        yield Tool("bubblewrap", (PROGRAM,), purpose, install, used=True)


def _packages(facts: Mapping[str, Any], distribution: Distribution) -> Iterator[Item]:
    """What the interpreter that is built against has."""
    python = facts["python"]["executable"]
    torch = facts["torch"] or {}
    headers, tvm = facts["python"]["include_dir"], facts["tvm_ffi"] or {}
    install = distribution.install("python-headers")
    rows = (
        ("Python headers", headers, "compiling bindings", install, True),
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
        mend = tool.mend if tool.used else ""
        return Item(tool.name, "optional", "", purpose, mend, tool.without)
    note = "" if tool.used else " (not used yet)"
    return Item(tool.name, "ok", f"{version_of(Path(program), runner)} {program}{note}", purpose)


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


def _versioned(facts: Mapping[str, Any]) -> str:
    return f"{facts['version']} {facts['root']}" if facts else ""


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

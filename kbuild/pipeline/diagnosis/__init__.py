"""`kbuild doctor`: what this machine has for building kernels, and how to install the rest.

No package is imported for it: programs are asked for their version, packages are located.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import tomli

from kbuild.checks.probe_process import BUBBLEWRAP
from kbuild.pipeline.nix.program import Nix, find_nix, nix_program
from kbuild.project.variant import System, host_system
from kbuild.system.atomic import files_below
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.quantities import size_text
from kbuild.toolchains.build_tools import (
    OLDEST_GCC,
    cmake,
    cross_package,
    cross_programs,
    find_cxx,
    ninja,
)
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.from_wheels import SYSTEM
from kbuild.toolchains.host import choose_python, install_command
from kbuild.toolchains.manylinux.compiler import (
    DEFAULT_POLICY,
    OLDEST_ASSEMBLER,
    LinkRequirements,
    link_requirements,
)
from kbuild.toolchains.wheels.lock import packaged_lock

ItemState = Literal["ok", "missing", "optional"]
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")


@dataclass(frozen=True)
class DiagnosisItem:
    """A component of the machine, there or missing."""

    name: str
    state: ItemState
    """State of the component: `optional` if it is missing and most builds do not need it."""
    details: str
    """Version and place; the reason if it is there and not good enough."""
    needed_for: str
    mend: str = ""
    """Command that installs or repairs it, if that is needed."""

    def to_json(self) -> dict[str, Any]:
        """The item as a JSON object."""
        return asdict(self)


def program_version(program: Path, runner: Runner) -> str:
    """The version in the output of `--version`, e.g. `12.2.0`."""
    done = runner.run((str(program), "--version"))
    match = _VERSION.search(done.output)
    return match[0] if match and done.ok else "version unknown"


OS_RELEASE = Path("/etc/os-release")
_OS_RELEASE_LINE = re.compile(r'^(\w+)=["\']?([^"\'\n]*)["\']?$', re.MULTILINE)


@dataclass(frozen=True)
class LinuxDistribution:
    """A family of distributions with the same package names; an unknown one has no name."""

    family: str = ""

    def install(self, what: str, **values: str) -> str:
        """The command, or which package to look for, of an entry of `packages.toml`."""
        entry = _install_commands()[what]
        return entry.get(self.family, entry["other"]).format(**values)


def detect_distribution(os_release: Path = OS_RELEASE) -> LinuxDistribution:
    """The distribution of os-release(5), by `ID` and then by `ID_LIKE`."""
    try:
        facts = dict(_OS_RELEASE_LINE.findall(os_release.read_text("utf-8", "replace")))
    except OSError:
        return LinuxDistribution()
    names = (facts.get("ID", ""), *facts.get("ID_LIKE", "").split())
    known = {family for entry in _install_commands().values() for family in entry}
    return LinuxDistribution(next((name for name in names if name in known), ""))


@lru_cache(maxsize=1)
def _install_commands() -> Mapping[str, Mapping[str, str]]:
    return tomli.loads(Path(__file__).with_name("packages.toml").read_text("utf-8"))


_CXX_NAME, _LINKS_NAME = "C++ compiler", "portable links"
_GLIBC_ONLY = "set CXX to a compiler for glibc"


@dataclass(frozen=True)
class CompilerDiagnosis:
    """The programs and variables to examine."""

    cache: FactCache
    runner: Runner
    distribution: LinuxDistribution

    def items(self) -> tuple[DiagnosisItem, ...]:
        """The compiler; on Linux, its links too."""
        try:
            program = find_cxx()
        except ToolchainError:
            program = None
        links = (self._links(program),) if sys.platform == "linux" else ()
        return (self._compiler(program), *links)

    def _compiler(self, program: Path | None) -> DiagnosisItem:
        purpose, mend = "compiling kernels", self.distribution.install("cxx")
        if program is None:
            return DiagnosisItem(_CXX_NAME, "missing", "", purpose, mend)
        version = program_version(program, self.runner)
        # `12` of `12.2.0`; None when there is no number.
        head = version.partition(".")[0]
        description, release = f"{version} {program}", (int(head) if head.isdigit() else None)
        is_gcc = "clang" not in program.name and "clang" not in str(program.resolve())
        if is_gcc and sys.platform == "linux" and release is not None and release < OLDEST_GCC:
            message = f"{description}: too old, {OLDEST_GCC} is the oldest that does"
            return DiagnosisItem(_CXX_NAME, "missing", message, purpose, mend)
        return DiagnosisItem(_CXX_NAME, "ok", description, purpose)

    def _links(self, program: Path | None) -> DiagnosisItem:
        """Check the link environment: without it, results need a system as new as this one."""
        if program is None:
            return self._no_links("", self.distribution.install("cxx"))
        needs = link_requirements(program, self.cache, self.runner)
        if needs.glibc is None:
            return self._no_links(f"`{program}` is not for glibc", _GLIBC_ONLY)
        glibc = f"glibc {'.'.join(map(str, needs.glibc))}"
        if needs.is_old_enough(DEFAULT_POLICY):
            return DiagnosisItem(
                _LINKS_NAME, "ok", f"{glibc}, as old as {DEFAULT_POLICY}'s", _portability_purpose()
            )
        return self._lacking(needs) or DiagnosisItem(
            _LINKS_NAME,
            "ok",
            f"{needs.libstdcxx} assembler {needs.assembler} {glibc}",
            _portability_purpose(),
        )

    def _lacking(self, needs: LinkRequirements) -> DiagnosisItem | None:
        if needs.libstdcxx is None:
            mend = self.distribution.install("static-cxx", gcc=needs.gcc)
            return self._no_links("no libstdc++.a", mend)
        if needs.assembler is not None and needs.assembler < OLDEST_ASSEMBLER:
            description = f"assembler {needs.assembler}: too old, {OLDEST_ASSEMBLER} is the oldest"
            return self._no_links(description, self.distribution.install("assembler"))
        return None

    def _no_links(self, description: str, mend: str) -> DiagnosisItem:
        return DiagnosisItem(_LINKS_NAME, "optional", description, _portability_purpose(), mend)


def _portability_purpose() -> str:
    return f"results for {DEFAULT_POLICY} and newer systems"


_NIX_NAME, _SANDBOX_NAME = "Nix", "Nix sandbox"
_NIX_PURPOSE = "builds in a sandbox: --driver nix"
_NIX_INSTALL = "install.sh --with-nix"
_SANDBOX_PURPOSE = "results that depend on nothing else"


def nix_items(cache: Path, runner: Runner) -> Iterator[DiagnosisItem]:
    """The program; where it can be used, its sandbox as well."""
    try:
        nix = find_nix(cache, runner)
    except ToolchainError as error:
        program = nix_program()
        description = f"{program}: {error.message}" if program else ""
        yield DiagnosisItem(_NIX_NAME, "optional", description, _NIX_PURPOSE, _NIX_INSTALL)
        return
    yield DiagnosisItem(_NIX_NAME, "ok", f"{nix.version} {nix.program}", _NIX_PURPOSE)
    yield _nix_sandbox(nix)


def _nix_sandbox(nix: Nix) -> DiagnosisItem:
    state = nix.sandbox
    spaces = "user namespaces" if state.has_namespaces else "no user namespaces"
    users = "users to build as" if state.has_users else "no users to build as"
    description = f"{state.state}, {spaces}, {users}"
    if state.state != "on":
        mend = "in nix.conf: sandbox = true, sandbox-fallback = false"
        return DiagnosisItem(_SANDBOX_NAME, "optional", description, _SANDBOX_PURPOSE, mend)
    return DiagnosisItem(_SANDBOX_NAME, "ok", description, _SANDBOX_PURPOSE)


@dataclass(frozen=True)
class OptionalTool:
    """A program that some builds need."""

    name: str
    programs: tuple[str, ...]
    needed_for: str
    mend: str


OPTIONAL_TOOLS = (
    OptionalTool(
        "CUDA",
        ("nvcc",),
        "CUDA kernels without wheels: --toolchain host, --dev",
        "set CUDA_HOME to a toolkit",
    ),
    OptionalTool(
        "ROCm",
        ("hipcc", "amdclang++"),
        "ROCm kernels",
        "install ROCm, or set ROCM_PATH to it",
    ),
    OptionalTool(
        "oneAPI",
        ("icpx",),
        "XPU kernels",
        "source oneAPI's setvars.sh",
    ),
)


def diagnose(
    python: Path | None, cache: Path, runner: Runner, os_release: Path = OS_RELEASE
) -> Iterator[DiagnosisItem]:
    """Everything worth knowing, what builds cannot do without first.

    Args:
        python: the interpreter to build against; the one that builds use when None.
        cache: kbuild's cache folder.
        runner: asks programs for their version.
        os_release: names the distribution, whose commands are given.
    """
    yield DiagnosisItem(
        "Python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} {sys.executable}", "kbuild"
    )
    distribution, facts = detect_distribution(os_release), FactCache(cache)
    yield from CompilerDiagnosis(facts, runner, distribution).items()
    if str(host_system()) == SYSTEM:
        for cpu in packaged_lock().cross:
            yield _optional_item(_cross_compiler(System(cpu, "linux")), runner)
    yield _build_tool("cmake", runner)
    yield _build_tool("ninja", runner)
    yield from _python_packages(choose_python(python, facts, runner), distribution)
    purpose = "op names that follow commits, and headers from git"
    git_tool = OptionalTool("git", ("git",), purpose, distribution.install("git"))
    yield _optional_item(git_tool, runner)
    for tool in (*OPTIONAL_TOOLS, *_bubblewrap(distribution)):
        yield _optional_item(tool, runner)
    yield _cuda_12(cache, runner)
    yield from nix_items(cache, runner)
    size = sum(status.st_size for _, status in files_below(str(cache)))
    description = f"{size_text(size)} {cache}"
    yield DiagnosisItem("cache", "ok", description, "not asking and compiling twice")


def _cross_compiler(system: System) -> OptionalTool:
    purpose, mend = f"--system {system}", f"apt install {cross_package(system)}"
    return OptionalTool(f"C++ for {system}", cross_programs(system), purpose, mend)


def _build_tool(name: str, runner: Runner) -> DiagnosisItem:
    try:
        program = {"cmake": cmake, "ninja": ninja}[name]()
    except ToolchainError:
        return DiagnosisItem(
            name, "missing", "", "compiling kernels", f"{sys.executable} -m pip install {name}"
        )
    return DiagnosisItem(
        name, "ok", f"{program_version(program, runner)} {program}", "compiling kernels"
    )


def _bubblewrap(distribution: LinuxDistribution) -> Iterator[OptionalTool]:
    """Check for bubblewrap, which only Linux has."""
    if sys.platform == "linux":
        purpose = "loading kernels in a sandbox: no network, no home"
        install = distribution.install("bubblewrap")
        yield OptionalTool("bubblewrap", (BUBBLEWRAP,), purpose, install)


def _python_packages(
    facts: Mapping[str, Any], distribution: LinuxDistribution
) -> Iterator[DiagnosisItem]:
    """The packages of the interpreter that is built against."""
    headers, install = facts["python"]["include_dir"], distribution.install("python-headers")
    torch, kernels = _version_and_root(facts["torch"] or {}), facts["kernels"] or ""
    tvm = _version_and_root(facts["tvm_ffi"] or {})
    lacking = [name for name, facts in (("torch", torch), ("kernels", kernels)) if not facts]
    install_lacking = install_command(facts, *lacking, "pytest")
    if lacking:  # possibly into an environment that is yet to be made
        install_tvm = "`pip install apache-tvm-ffi` in the same environment"
    else:
        install_tvm = install_command(facts, "apache-tvm-ffi")
    mend_client = "see torch" if not torch else install_lacking
    rows = (
        ("Python headers", headers, "compiling bindings", install, True),
        ("torch", torch, "building for Torch", install_lacking, True),
        ("kernels", kernels, "loading and testing", mend_client, True),
        ("TVM-FFI", tvm, "kernels with [tvm-ffi]", install_tvm, False),
    )
    for name, state, purpose, mend, required in rows:
        if state:
            yield DiagnosisItem(name, "ok", state, purpose)
        else:
            yield DiagnosisItem(name, "missing" if required else "optional", "", purpose, mend)


def _optional_item(tool: OptionalTool, runner: Runner) -> DiagnosisItem:
    program = next(filter(None, map(shutil.which, tool.programs)), None)
    if program is None:
        return DiagnosisItem(tool.name, "optional", "", tool.needed_for, tool.mend)
    description = f"{program_version(Path(program), runner)} {program}"
    return DiagnosisItem(tool.name, "ok", description, tool.needed_for)


def _cuda_12(cache: Path, runner: Runner) -> DiagnosisItem:
    """Check for CUDA 12, whose compiler is in no wheel: toolkits here, then those of plug-ins."""
    from kbuild.backends.cuda import Cuda
    from kbuild.project.matrix import matrix_entries
    from kbuild.system.store import open_store
    from kbuild.toolchains.cuda_toolkits import LocalCudaToolkits
    from kbuild.toolchains.plugins import plugin_cuda_toolkits
    from kbuild.toolchains.wheels.installer import WheelInstaller

    local, purpose = LocalCudaToolkits(FactCache(cache), runner), "CUDA 12 kernels"
    releases = sorted(
        {str(entry.backend_version) for entry in matrix_entries() if entry.backend == Cuda.name}
    )
    toolkits = [
        f"{release} {local.provide(release).root}"
        for release in releases
        if local.unsupported_reason(release) is None
    ]
    if toolkits:
        return DiagnosisItem("CUDA 12", "ok", ", ".join(toolkits), purpose)
    mend = "install it and set CUDA_HOME"
    for plugin in plugin_cuda_toolkits(WheelInstaller(runner, open_store(cache)), cache):
        reasons = [
            plugin.unsupported_reason(release) for release in releases if release.startswith("12")
        ]
        if None in reasons:
            return DiagnosisItem("CUDA 12", "ok", f"{plugin.name} {plugin.version}", purpose)
        mend += f", or {reasons[-1]}" if reasons else ""
    return DiagnosisItem("CUDA 12", "optional", "", purpose, mend)


def _version_and_root(facts: Mapping[str, Any]) -> str:
    return f"{facts['version']} {facts['root']}" if facts else ""

"""The machine's own compilers, and the Torch and TVM-FFI of a Python interpreter."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.plan.plan import Requirements
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner, canonical_interpreter
from kbuild.system.progress import Downloads
from kbuild.system.version import Version
from kbuild.toolchains import build_tools
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.device_compilers import (
    DeviceCompiler,
    DeviceCompilerFinder,
    find_device_compiler,
    nvcc_host_compiler,
)
from kbuild.toolchains.facts import FactCache, Facts, compiler_facts, interpreter_facts
from kbuild.toolchains.manylinux.environment import manylinux_linking


def framework_versions(requires: Requirements, facts: Facts) -> tuple[tuple[str, str], ...]:
    """The required frameworks in the releases that the interpreter has, for the record."""
    asked = (("torch", requires.torch, "torch"), ("apache-tvm-ffi", requires.tvm_ffi, "tvm_ffi"))
    return tuple((name, facts[key]["version"]) for name, wanted, key in asked if wanted)


def release_of(version: str) -> Version:
    """`2.13` of `2.13.0+cpu`.

    Raises:
        ToolchainError: it starts with no such number.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ToolchainError(f"`{version}` is not a version that kbuild understands")
    return Version((int(match[1]), int(match[2])))


def _unsupported_torch_reason(requires: Requirements, facts: Facts) -> str | None:
    if requires.torch is None:
        return None
    wanted, torch = Version.parse(requires.torch), facts["torch"]
    python, exact = facts["python"]["executable"], requires.torch_exact
    if torch is None:
        return f"needs Torch {wanted}; {python} has none"
    release, has = release_of(torch["version"]), f"{python} has {torch['version']}"
    if release != wanted and (exact or release < wanted):
        return f"needs Torch {wanted}{'' if exact else ' or newer'}; {has}"
    field = BACKENDS.get(requires.backend).torch_field
    if exact and field and not torch["built_for"].get(field):
        return f"needs a {requires.backend} build of Torch {wanted}; {has}"
    return None


def _unsupported_tvm_ffi_reason(requires: Requirements, facts: Facts) -> str | None:
    if requires.tvm_ffi is None:
        return None
    wanted, installed = Version.parse(requires.tvm_ffi), facts["tvm_ffi"]
    if installed is None or not installed["version"]:
        return f"needs apache-tvm-ffi {wanted}; {facts['python']['executable']} has none"
    fits = release_of(installed["version"]) == wanted
    return None if fits else f"needs apache-tvm-ffi {wanted}; found {installed['version']}"


DEFAULT_EPOCH = "315532800"
"""1980-01-01: the time that compilers are told, in seconds since 1970."""
# Flags from the environment would get into objects without the plan knowing.
_LEAKING_VARIABLES = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDAFLAGS", "HIPFLAGS", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CMAKE_GENERATOR",
    "CMAKE_BUILD_TYPE", "CMAKE_TOOLCHAIN_FILE", "DESTDIR", "NINJA_STATUS", "PYTHONPATH",
)  # fmt: skip


@dataclass(frozen=True)
class HostToolchains(ToolchainSource):
    """The host's compilers for C++; the Torch that `python` has."""

    runner: Runner
    cache: FactCache
    python: Path | None = None
    """Interpreter whose Torch is built against; found when None, see `choose_python`."""
    finder: DeviceCompilerFinder | None = find_device_compiler
    """Finds device compilers; None when none are looked for."""
    is_portable: bool = True
    """True when libraries must run on older systems than this machine's as well."""
    downloads: Downloads = field(default_factory=Downloads)
    """Display of downloads, for sources that build on this one."""

    name = "host"

    @cached_property
    def facts(self) -> Facts:
        """The chosen interpreter's facts."""
        return choose_python(self.python, self.cache, self.runner)

    @property
    def torch(self) -> Version | None:
        """Torch release `major.minor` of the chosen interpreter."""
        torch = self.facts["torch"]
        return release_of(torch["version"]) if torch else None

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""
        if requires.system is not None and requires.system != str(host_system()):
            return f"needs {requires.system}; this machine is {host_system()}"
        if requires.libraries:
            return f"needs the headers of {', '.join(requires.libraries)}"
        return self._unsupported_device_reason(requires) or self._unsupported_interpreter_reason(
            requires
        )

    def _device(self, requires: Requirements) -> DeviceCompiler | None:
        if self.finder is None or not requires.toolkit:
            return None
        return self.finder(requires.backend, self.cache, self.runner)

    def _unsupported_device_reason(self, requires: Requirements) -> str | None:
        """The reason why no device compiler of the variant's release is here; None if one is."""
        if requires.system is None or BACKENDS.get(requires.backend).is_plain_cxx:
            return None
        wanted = " ".join(part for part in (requires.backend, requires.toolkit) if part)
        compiler = self._device(requires)
        if compiler is None:
            return f"needs a compiler for {wanted}; none was found on this machine"
        if not requires.toolkit or not compiler.fits(requires.toolkit):
            return f"needs a compiler for {wanted}; `{compiler.program}` is {compiler.version}"
        return None

    def _unsupported_interpreter_reason(self, requires: Requirements) -> str | None:
        """The reason why the interpreter does not fit; none is needed where no framework is."""
        if requires.torch is None and requires.tvm_ffi is None:
            return None
        return _unsupported_torch_reason(requires, self.facts) or _unsupported_tvm_ffi_reason(
            requires, self.facts
        )

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.unsupported_reason(requires)
        if reason is not None:
            raise ToolchainError(f"the host toolchain does not fit: {reason}")
        cxx = build_tools.find_cxx()
        system = requires.system if self.is_portable else None
        links = manylinux_linking(system, cxx, self.cache.folder, self.runner)
        device = self._device(requires)
        return Toolchain(
            source=self.name,
            cmake=build_tools.cmake(),
            ninja=build_tools.ninja(),
            python=Path(self.facts["python"]["executable"]),
            cache=(
                ("CMAKE_CXX_COMPILER", str(cxx)),
                *(self._device_entries(device, cxx) if device else ()),
                *cmake_facts(self.facts, requires),
                *links.cache_entries,
            ),
            versions=(
                ("c++", compiler_facts(cxx, self.cache, self.runner)["version"]),
                *links.versions,
                *([(requires.backend, str(device.version))] if device else ()),
                *framework_versions(requires, self.facts),
            ),
            env=clean_environment(os.environ) | dict(device.env if device else ()),
            redistributable=links.promised,
            notes=links.notes,
        )

    def _device_entries(self, device: DeviceCompiler, cxx: Path) -> tuple[tuple[str, str], ...]:
        if not device.has_host_compiler:
            return device.entries
        other = nvcc_host_compiler(device.root, cxx, self.cache, self.runner)
        return (*device.entries, ("CMAKE_CUDA_HOST_COMPILER", str(other)))


def choose_python(asked: Path | None, cache: FactCache, runner: Runner) -> Facts:
    """Facts of the interpreter to build against.

    The requested one; otherwise the first with a Torch of: the active virtual environment's, the
    one that runs kbuild unless nobody but kbuild uses it, `python3` on PATH.

    Raises:
        ToolchainError: the requested one is not a Python interpreter.
    """
    if asked is not None:
        program = shutil.which(str(asked))
        if program is None:
            raise ToolchainError(
                f"`{asked}` is not a program", hint="--python takes an interpreter"
            )
        return interpreter_facts(canonical_interpreter(Path(program).absolute()), cache, runner)
    answers = [interpreter_facts(python, cache, runner) for python in _candidate_pythons()]
    # Without any Torch, the first will do: some variants need no framework.
    return next((facts for facts in answers if facts["torch"]), answers[0])


def _candidate_pythons() -> list[Path]:
    pythons = []
    active = os.environ.get("VIRTUAL_ENV")
    if active and Path(active, "bin", "python").is_file():
        pythons.append(Path(active, "bin", "python"))
    own, on_path = Path(sys.executable), shutil.which("python3")
    # Nobody installs Torch into an environment that a tool manages for kbuild alone.
    if not is_tool_environment(Path(sys.prefix)):
        pythons.append(own)
    if on_path:
        pythons.append(Path(on_path))
    return list(dict.fromkeys(canonical_interpreter(python) for python in pythons or [own]))


def is_tool_environment(prefix: Path) -> bool:
    """True for an environment that uv, pipx or `install.sh` made for kbuild alone."""
    marks = ("uv-receipt.toml", "pipx_metadata.json", "../.made-by-install.sh")
    return any((prefix / mark).is_file() for mark in marks)


def install_command(facts: Facts, *packages: str) -> str:
    """The command that installs packages for an interpreter.

    Into a new environment where the distribution manages the interpreter's own packages (PEP 668),
    and with uv into one that has no pip.
    """
    program, listed = facts["python"]["executable"], " ".join(packages)
    prefix = Path(program).parent.parent
    release = ".".join(facts["python"]["version"].split(".")[:2])
    is_environment = (prefix / "pyvenv.cfg").is_file()
    if not is_environment and (prefix / f"lib/python{release}/EXTERNALLY-MANAGED").is_file():
        return f"{program} -m venv .venv && . .venv/bin/activate && pip install {listed}"
    if is_environment and not Path(facts["python"]["purelib"], "pip").is_dir():
        return f"uv pip install --python {program} {listed}"
    return f"{program} -m pip install {listed}"


def cmake_facts(facts: Facts, requires: Requirements) -> tuple[tuple[str, str], ...]:
    """The cache entries that generated projects read instead of running their own probe."""
    torch, tvm = facts["torch"] or {}, facts["tvm_ffi"] or {}
    entries = [
        ("KBUILD_PYTHON", facts["python"]["executable"]),
        ("KBUILD_PYTHON_INCLUDE_DIR", facts["python"]["include_dir"]),
    ]
    if requires.torch:
        entries += [
            ("KBUILD_TORCH_VERSION", torch["version"]),
            ("KBUILD_TORCH_INCLUDE_DIRS", ";".join(torch["include_dirs"])),
            ("KBUILD_TORCH_LIBRARY_DIR", torch["library_dir"]),
            ("KBUILD_TORCH_CXX11_ABI", "1" if torch["cxx11_abi"] else "0"),
        ]
    if requires.tvm_ffi:
        entries += [
            ("KBUILD_TVM_FFI_INCLUDE_DIRS", ";".join(tvm["include_dirs"])),
            ("KBUILD_TVM_FFI_LIBRARY_DIR", tvm["library_dir"]),
        ]
    return tuple(entries)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the build's processes: ours without what would change objects.

    `__DATE__` and `__TIME__` are the same in every build, unless `SOURCE_DATE_EPOCH` is set.
    """
    kept = {key: value for key, value in environ.items() if key not in _LEAKING_VARIABLES}
    epoch = kept.get("SOURCE_DATE_EPOCH") or DEFAULT_EPOCH
    # With CLICOLOR_FORCE of the user's, ninja would leave colours in what is parsed here.
    return kept | {"LC_ALL": "C.UTF-8", "CLICOLOR_FORCE": "0", "SOURCE_DATE_EPOCH": epoch}

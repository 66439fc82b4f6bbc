"""A variant: one point of the build matrix, and the directory name that says which.

Names follow the `kernels` client (its `variants.py` parses them at load time):

    torch213-cxx11-cu130-x86_64-linux      Torch extension, Linux
    torch213-metal-aarch64-darwin          Torch extension, macOS and Windows
    torch-stable-abi211-cpu-x86_64-linux   Torch stable ABI
    tvm-ffi01-cu132-x86_64-linux           TVM-FFI
    torch-cuda                             Python only, named by backend alone
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from kbuild.system.version import Version

FrameworkName = Literal["torch", "torch-stable-abi", "tvm-ffi", "torch-noarch"]

# Spellings in variant names that differ from the backend's own name.
_COMPUTE_TAGS = {"cuda": "cu"}
_NOARCH_TAGS = {"cann": "npu"}
_BACKEND_OF_COMPUTE = {tag: name for name, tag in _COMPUTE_TAGS.items()}
_BACKEND_OF_NOARCH = {tag: name for name, tag in _NOARCH_TAGS.items()}

CPUS = ("x86_64", "aarch64")
SYSTEMS = ("linux", "darwin", "windows")
# Python-only directories that older tools wrote and the client still loads.
_LEGACY_NOARCH = "universal"
_MAX_MINOR = 9

_ARCH_NAME = re.compile(
    r"(?:torch(?P<torch>\d{2,})(?P<cxx11>-cxx11)?"
    r"|torch-stable-abi(?P<stable>\d{2,})"
    r"|tvm-ffi(?P<tvm>\d{2,}))"
    r"-(?P<tag>[a-z]+)(?P<compute>\d{2,})?"
    rf"-(?P<cpu>{'|'.join(CPUS)})-(?P<os>{'|'.join(SYSTEMS)})"
)
# `torch-ext` is where every project keeps its Python package.
_NOARCH_NAME = re.compile(r"torch-(?!ext$)(?P<tag>[a-z]+)")


@dataclass(frozen=True)
class System:
    """A CPU and an operating system, written `x86_64-linux`."""

    cpu: str
    os: str

    @classmethod
    def parse(cls, text: str) -> System:
        """Read `x86_64-linux`; raises `ValueError` for anything else."""
        cpu, _, os = text.partition("-")
        if cpu not in CPUS or os not in SYSTEMS:
            raise ValueError(f"`{text}` is not a system: write e.g. `x86_64-linux`")
        return cls(cpu, os)

    def __str__(self) -> str:
        return f"{self.cpu}-{self.os}"


def host_system() -> System:
    """The CPU and operating system that this process runs on."""
    cpu = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    return System(cpu, platform.system().lower())


@dataclass(frozen=True)
class Variant:
    """One point of the matrix."""

    framework: FrameworkName
    backend: str
    """Name as in `general.backends`: `cpu`, `cuda`, `rocm`, `xpu`, `metal`, `cann`, ..."""
    framework_version: Version | None = None
    """Torch release, stable-ABI floor or TVM-FFI release; None for Python-only variants."""
    backend_version: Version | None = None
    """CUDA, ROCm or oneAPI release; None where the backend has none."""
    system: System | None = None
    """None for Python-only variants."""

    @property
    def is_noarch(self) -> bool:
        """True when the variant holds Python files only."""
        return self.framework == "torch-noarch"

    @property
    def compute(self) -> str:
        """The part of the name that says where it computes: `cpu`, `cu130`, `xpu20260`, `metal`.

        Raises:
            ValueError: the backend's minor version has more than one digit and cannot be written.
        """
        tag = _COMPUTE_TAGS.get(self.backend, self.backend)
        if self.backend_version is None:
            return tag
        if self.backend_version.minor > _MAX_MINOR:
            raise ValueError(f"{self.backend} {self.backend_version} has no variant name")
        return f"{tag}{self.backend_version.compact}"

    def __str__(self) -> str:
        if self.is_noarch:
            return f"torch-{_NOARCH_TAGS.get(self.backend, self.backend)}"
        if self.framework_version is None or self.system is None:
            raise ValueError(f"a compiled {self.backend} variant has a release and a system")
        abi = "-cxx11" if self.framework == "torch" and self.system.os == "linux" else ""
        release = f"{self.framework}{self.framework_version.compact}"
        return f"{release}{abi}-{self.compute}-{self.system}"

    @classmethod
    @lru_cache(maxsize=1024)  # plans and folders have names, and many places ask what they mean
    def parse(cls, name: str) -> Variant:
        """Read a variant directory's name.

        Raises:
            ValueError: the `kernels` client would not recognise the name either.
        """
        if match := _NOARCH_NAME.fullmatch(name):
            tag = match["tag"]
            return cls("torch-noarch", _BACKEND_OF_NOARCH.get(tag, tag))
        match = _ARCH_NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"`{name}` is not a variant name")
        frameworks: dict[FrameworkName, str | None] = {
            "torch": match["torch"],
            "torch-stable-abi": match["stable"],
            "tvm-ffi": match["tvm"],
        }
        framework, digits = next((name, text) for name, text in frameworks.items() if text)
        compute = match["compute"]
        variant = cls(
            framework,
            _BACKEND_OF_COMPUTE.get(match["tag"], match["tag"]),
            # `213` is 2.13, but compute versions have a minor of one digit: `20260` is 2026.0.
            framework_version=Version((int(digits[0]), int(digits[1:]))),
            backend_version=Version((int(compute[:-1]), int(compute[-1]))) if compute else None,
            system=System(match["cpu"], match["os"]),
        )
        if str(variant) != name:
            raise ValueError(f"`{name}` is not a variant name; did you mean `{variant}`?")
        return variant

    @property
    def is_legacy(self) -> bool:
        """True for `torch-universal`, which the client loads and kbuild does not write."""
        return self.is_noarch and self.backend == _LEGACY_NOARCH


def variant_named(name: str) -> Variant | None:
    """The variant of a directory's name; None when the name is no variant's."""
    try:
        return Variant.parse(name)
    except ValueError:
        return None

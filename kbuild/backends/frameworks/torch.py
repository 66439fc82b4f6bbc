"""Torch: the full C++ ABI of one release.

The stable ABI from one release on, and Python-only kernels.
"""

from __future__ import annotations

from typing import ClassVar

from kbuild.backends.frameworks.base import CXX17, CXX20, FRAMEWORKS, Framework
from kbuild.project.variant import FrameworkName
from kbuild.system.version import Version

PYTHON_FLOOR = Version((3, 9))
# A module of Python's stable ABI; macOS uses the Linux spelling (PEP 3149, PEP 384).
MODULE_SUFFIXES = {"linux": ".abi3.so", "darwin": ".abi3.so", "windows": ".pyd"}
_FIRST_CXX20 = Version((2, 12))


def limited_api(floor: Version = PYTHON_FLOOR) -> str:
    """The macro that limits `Python.h` to the stable ABI of CPython `floor` (PEP 384)."""
    return f"Py_LIMITED_API=0x{floor.major:02x}{floor.minor:02x}0000"


@FRAMEWORKS.add
class Torch(Framework):
    """Bindings through `TORCH_LIBRARY`; one build per Torch release."""

    name: ClassVar[FrameworkName] = "torch"
    table = "torch"
    package_root = "torch-ext"
    ops_template = "ops_torch.py.j2"
    name_macro = "TORCH_EXTENSION_NAME"
    module_suffixes = MODULE_SUFFIXES
    support_files = ("registration.h",)
    header_folders = ("torch", "ATen", "c10", "caffe2", "THC", "pybind11")
    build_requires = ("torch",)

    def definitions(self, ops_name: str, floor: Version | None) -> tuple[str, ...]:
        """`Py_LIMITED_API`: the extension serves every CPython from 3.9 on."""
        return (limited_api(),)

    def cxx_standard(self, release: Version | None) -> int:
        """C++20 from Torch 2.12 on, C++17 before."""
        return CXX17 if release is not None and release < _FIRST_CXX20 else CXX20

    def libraries(self) -> tuple[str, ...]:
        """The Torch libraries of the full ABI; backends add their own."""
        return ("torch", "torch_cpu", "c10")


@FRAMEWORKS.add
class TorchStableAbi(Torch):
    """Bindings through `STABLE_TORCH_LIBRARY`; one build for all releases from the floor on."""

    name: ClassVar[FrameworkName] = "torch-stable-abi"

    def definitions(self, ops_name: str, floor: Version | None) -> tuple[str, ...]:
        """`TORCH_TARGET_VERSION` as Torch's headers encode it: `major << 56 | minor << 48`."""
        if floor is None:
            return (limited_api(),)
        target = (floor.major << 56) | (floor.minor << 48)
        return (limited_api(), f"TORCH_TARGET_VERSION=0x{target:016x}")

    def cxx_standard(self, release: Version | None) -> int:
        """C++20: the stable headers of every supported release take it."""
        return CXX20

    def libraries(self) -> tuple[str, ...]:
        """libtorch alone: the shim functions live in libraries that it pulls in."""
        return ("torch", "torch_cpu")


@FRAMEWORKS.add
class TorchNoarch(Framework):
    """Triton and other kernels whose files are Python."""

    name = "torch-noarch"
    table = "torch-noarch"
    package_root = "torch-ext"
    ops_template = "ops_noarch.py.j2"
    compiled = False

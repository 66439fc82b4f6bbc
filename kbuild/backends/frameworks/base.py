"""The questions a framework answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kbuild.project.variant import FrameworkName
from kbuild.system.registry import Registry
from kbuild.system.version import Version

CXX17 = 17
CXX20 = 20


class Framework:
    """Base of all frameworks."""

    name: ClassVar[FrameworkName]
    table: ClassVar[str]
    """The `build.toml` table that asks for it."""
    package_root: ClassVar[str]
    """Folder of the Python package in the source tree."""
    ops_template: ClassVar[str]
    """Template of `_ops.py`, below `templates/project/`."""
    runtime_module: ClassVar[str] = "torch"
    """Python module without which no kernel of it can be loaded."""
    runtime_package: ClassVar[str] = "torch"
    """The distribution with that module."""
    name_macro: ClassVar[str] = ""
    """Macro that holds the op namespace in sources."""
    compiled: ClassVar[bool] = True
    module_suffixes: ClassVar[Mapping[str, str]] = {}
    """Operating system -> what follows the op namespace in the extension's file name."""
    support_files: ClassVar[tuple[str, ...]] = ()
    """Headers that kbuild puts into `package_root`, by name below `templates/project/`."""
    header_folders: ClassVar[tuple[str, ...]] = ()
    """First parts of the names of the framework's own headers, up to the first `/`."""
    build_requires: ClassVar[tuple[str, ...]] = ()
    """Distributions that a build through `pip` needs beside the build tools."""
    names_devices: ClassVar[bool] = False
    """True when its `_ops.py` names the backend's devices for Torch and JAX."""
    exports: ClassVar[tuple[str, ...]] = ()
    """Patterns of the only symbols that its extensions offer; all C names when empty."""
    backend_macros: ClassVar[bool] = True
    """True when units see the backend's further macros (`USE_CUDA=1`) beside its own."""

    def definitions(self, ops_name: str, floor: Version | None) -> tuple[str, ...]:
        """Macros of every unit that sees the framework.

        Args:
            ops_name: the op namespace; only sources that use `name_macro` get to see it.
            floor: stable-ABI floor, where the framework has one.
        """
        return ()

    def cxx_standard(self, release: Version | None) -> int:
        """The C++ standard that this release's headers need."""
        return CXX20

    def extension_file(self, ops_name: str, os: str) -> str:
        """File name of the compiled extension.

        Args:
            ops_name: the op namespace.
            os: `linux`, `darwin` or `windows`.
        """
        return f"{ops_name}{self.module_suffixes[os]}"

    def libraries(self) -> tuple[str, ...]:
        """Libraries of the framework that every extension links, by base name."""
        return ()


FRAMEWORKS: Registry[Framework] = Registry("kbuild.backends.frameworks", "kbuild.frameworks")

"""This machine's own ROCm: `$ROCM_PATH`, `/opt/rocm`, or where `hipcc` on PATH belongs to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.plan import Requirements
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.facts import compiler
from kbuild.toolchains.hip import RocmFolder, refuses_torch, with_hip, without_device
from kbuild.toolchains.host import Host
from kbuild.version import Version

VARIABLE = "ROCM_PATH"
_USUAL = Path("/opt/rocm")


@dataclass(frozen=True)
class RocmHost(ToolchainSource):
    """An installed ROCm for device code; `host` for the rest."""

    host: Host
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    usual: Path = _USUAL
    """Where ROCm's packages install to."""

    name = "rocm"
    backends = ("rocm",)

    @cached_property
    def folder(self) -> RocmFolder | None:
        """The ROCm that is used; None without one."""
        return find_rocm(self.environ, self.usual)

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`."""
        if requires.backend != "rocm" or requires.toolkit is None:
            return "a ROCm compiles for ROCm only"
        return (
            self.host.refuses(without_device(requires))
            or self._refuses_rocm(requires.toolkit)
            or refuses_torch(requires, self.host.facts)
        )

    def _refuses_rocm(self, toolkit: str) -> str | None:
        """A build is named after its ROCm, and loads under that release only."""
        rocm = self.folder
        if rocm is None:
            return f"needs ROCm {toolkit}; there is none at ${VARIABLE}, {self.usual} or on PATH"
        if rocm.version is None:
            return f"needs ROCm {toolkit}; {rocm.path} does not say which release it is"
        if not _is_release(rocm.version, toolkit):
            return f"needs ROCm {toolkit}; {rocm.path} has {rocm.version}"
        missing = [
            what
            for what, found in (("clang", rocm.compiler), ("HIP's CMake package", rocm.hip_package))
            if found is None
        ]
        return f"{rocm.path} has no {' and no '.join(missing)}" if missing else None

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.refuses(requires)
        rocm = self.folder
        if reason is not None or rocm is None or rocm.compiler is None:
            raise ToolchainError(f"the ROCm toolchain does not fit: {reason}")
        clang = compiler(rocm.compiler, self.host.cache, self.host.runner)["version"]
        versions = (("rocm", rocm.version or ""), ("clang", clang))
        base = self.host.provision(without_device(requires))
        return with_hip(base, self.name, rocm, versions, self.host)


def find_rocm(environ: Mapping[str, str], usual: Path = _USUAL) -> RocmFolder | None:
    """The folder that the user names, whatever is in it; otherwise the first that is there."""
    asked = environ.get(VARIABLE)
    if asked:
        return RocmFolder(Path(asked).absolute())
    if usual.is_dir():
        return RocmFolder(usual)
    hipcc = shutil.which("hipcc", path=environ.get("PATH"))
    return RocmFolder(Path(hipcc).resolve().parent.parent) if hipcc else None


def _is_release(version: str, toolkit: str) -> bool:
    """True for 7.2.1 and 7.2."""
    try:
        found, wanted = Version.parse(version), Version.parse(toolkit)
    except ValueError:
        return False
    return (found.major, found.minor) == (wanted.major, wanted.minor)

"""Experimental toolchains from Debian packages: HIP without ROCm, and nvcc for CUDA 12."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbuild.toolchains.base import ToolchainSource
    from kbuild.toolchains.host import HostToolchains
    from kbuild.toolchains.rocm import RocmInstallation

DEBIAN_HIP = "debian-hip"
EXPERIMENTAL_VARIABLE = "KBUILD_EXPERIMENTAL"
"""Names of experimental sources that may be used, separated by commas."""


def rocm_sources(
    host: HostToolchains, environ: Mapping[str, str], asked: Iterable[str] = ()
) -> tuple[ToolchainSource, ...]:
    """The sources to ask, the best first."""
    from kbuild.toolchains.rocm import RocmToolchains

    installed = RocmToolchains(host, environ)
    if DEBIAN_HIP in {*asked, *_experimental_names(environ)}:
        from kbuild.plugins.debian.debian_hip.toolchain import DebianHipToolchains

        return installed, DebianHipToolchains(host, environ)
    return (installed,)


def rocm_installation(host: HostToolchains, environ: Mapping[str, str]) -> RocmInstallation | None:
    """An installed ROCm; without one Debian's packages, where the environment asks for these.

    Raises:
        ToolchainError: the packages cannot be had.
    """
    from kbuild.toolchains.rocm import RocmToolchains

    installed = RocmToolchains(host, environ).folder
    if installed is not None or DEBIAN_HIP not in _experimental_names(environ):
        return installed
    from kbuild.plugins.debian.debian_hip.toolchain import DebianHipToolchains

    return DebianHipToolchains(host, environ).folder()


def _experimental_names(environ: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in environ.get(EXPERIMENTAL_VARIABLE, "").split(",")}

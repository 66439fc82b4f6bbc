"""Which sources of HIP may serve, in order: an installed ROCm; Debian's packages when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbuild.toolchains.base import ToolchainSource
from kbuild.toolchains.hip import RocmFolder
from kbuild.toolchains.host import Host
from kbuild.toolchains.rocm_host import RocmHost

DEBIAN = "debian-hip"
VARIABLE = "KBUILD_EXPERIMENTAL"
"""Names of experimental sources that may be used, separated by commas."""


def rocm_sources(
    host: Host, environ: Mapping[str, str], asked: Iterable[str] = ()
) -> tuple[ToolchainSource, ...]:
    """The sources to ask, the best first.

    Args:
        host: compiles C++ and knows Torch.
        environ: the environment.
        asked: experimental sources named on the command line, beside those of the environment.
    """
    installed = RocmHost(host, environ)
    if DEBIAN in {*asked, *_listed(environ)}:
        from kbuild.toolchains.debian_hip import DebianHip

        return installed, DebianHip(host, environ)
    return (installed,)


def device_compilers(host: Host, environ: Mapping[str, str]) -> RocmFolder | None:
    """An installed ROCm; without one Debian's packages, where the environment asks for these.

    Raises:
        ToolchainError: the packages cannot be had.
    """
    installed = RocmHost(host, environ).folder
    if installed is not None or DEBIAN not in _listed(environ):
        return installed
    from kbuild.toolchains.debian_hip import DebianHip

    return DebianHip(host, environ).folder()


def _listed(environ: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in environ.get(VARIABLE, "").split(",")}

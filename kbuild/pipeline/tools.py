"""Which toolchain sources a command may use, and in which order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import UsageError
from kbuild.run import Runner
from kbuild.toolchains import ToolchainSource
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import Host
from kbuild.toolchains.rocm import rocm_sources
from kbuild.toolchains.sources import HeaderSources, WithHeaders
from kbuild.toolchains.toolbox import Toolbox

if TYPE_CHECKING:
    from kbuild.toolchains.torch_wheel import TorchWheel

NAMES = ("auto", "host", "wheels", "debian-hip", "debian-nvcc")
Say = Callable[[str], None]


def tools_of(
    name: str,
    runner: Runner,
    cache: Path,
    python: Path | None,
    sources: Mapping[str, Path],
    *,
    torch_wheels: Sequence[TorchWheel] = (),
    say: Say = lambda _: None,
) -> ToolchainSource:
    """The source of that name, with the headers that kernels depend on.

    Args:
        name: one of `NAMES`.
        runner: starts compilers, interpreters and git.
        cache: kbuild's cache folder.
        python: interpreter whose Torch is built against first.
        sources: folders of headers by dependency, from the command line.
        torch_wheels: go before every other Torch, for the variants that they fit.
        say: told what is fetched.

    Raises:
        UsageError: there is no source of that name.
    """
    compilers = _compilers(name, runner, cache, python, say=say)
    if torch_wheels:
        from kbuild.toolchains.torch_wheel import GivenFirst

        given = [
            (wheel, _compilers(name, runner, cache, python, say=say, supply=wheel))
            for wheel in torch_wheels
        ]
        compilers = GivenFirst(given, compilers)
    return WithHeaders(compilers, HeaderSources(sources, cache, runner))


def _compilers(
    name: str,
    runner: Runner,
    cache: Path,
    python: Path | None,
    *,
    say: Say,
    supply: TorchWheel | None = None,
) -> ToolchainSource:
    """The source of compilers and frameworks.

    `auto` takes the Torch that is installed for C++ variants that it fits, wheels for everything
    else that they have, and the host's device compilers (nvcc, icpx, an installed ROCm) for the
    rest; Debian's HIP only when `KBUILD_EXPERIMENTAL` says so. With wheels, CUDA 12 is compiled by
    an installed toolkit, else by Debian's nvcc if its licence is accepted. It is `host` alone when
    an interpreter was asked for: its Torch is then what the user wants to build against. With
    `supply`, each of them builds against that Torch.

    Raises:
        UsageError: there is no source of that name.
    """
    if name not in NAMES:
        raise UsageError(f"`{name}` is not a toolchain", hint=f"one of {', '.join(NAMES)}")
    host = Host(runner, FactCache(cache), python, supply=supply)
    hip = rocm_sources(host, os.environ, (name,))
    if name == "debian-hip":
        return hip[-1]
    if name == "host" or (name == "auto" and python is not None):
        return Toolbox((host, *hip))
    if name == "debian-nvcc":
        return _debian_nvcc(runner, cache, python, say, supply)
    wheels = _wheels(runner, cache, python, say, supply)
    if name == "wheels":
        return wheels
    return Toolbox((replace(host, finders={}), wheels, host, *hip))


def _wheels(
    runner: Runner, cache: Path, python: Path | None, say: Say, supply: TorchWheel | None
) -> ToolchainSource:
    """Wheels, and for CUDA 12 whatever nvcc there is."""
    from kbuild.store import store_of
    from kbuild.toolchains.debian_nvcc import DebianNvccToolkits
    from kbuild.toolchains.local_cuda import LocalToolkits
    from kbuild.toolchains.wheels import Wheels
    from kbuild.toolchains.wheels.installer import Installer

    debian = DebianNvccToolkits(Installer(runner, store_of(cache), say=say), cache)
    others = (LocalToolkits(FactCache(cache), runner), debian)
    return Wheels(runner, cache, python, say, others=others, supply=supply)


def _debian_nvcc(
    runner: Runner, cache: Path, python: Path | None, say: Say, supply: TorchWheel | None
) -> ToolchainSource:
    """Debian's nvcc alone."""
    from kbuild.store import store_of
    from kbuild.toolchains.debian_nvcc import DebianNvcc, DebianNvccToolkits
    from kbuild.toolchains.wheels import Wheels
    from kbuild.toolchains.wheels.installer import Installer

    toolkits = DebianNvccToolkits(Installer(runner, store_of(cache), say=say), cache)
    wheels = Wheels(runner, cache, python, say, others=(toolkits,), supply=supply)
    return DebianNvcc(wheels, toolkits)

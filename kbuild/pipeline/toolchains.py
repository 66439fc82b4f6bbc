"""Which toolchain sources a command may use, in which order; the user's Torch wheels go first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import ToolchainError, UsageError
from kbuild.matrix import matrix_entries
from kbuild.pipeline.options import BuildOptions
from kbuild.plan import VariantPlan
from kbuild.progress import Downloads
from kbuild.runtime.processes import Runner
from kbuild.services import Services
from kbuild.toolchains.base import CachedToolchains, FallbackToolchains, ToolchainSource
from kbuild.toolchains.dependency_headers.search import HeaderResolver, ToolchainsWithHeaders
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.rocm import RocmToolchains
from kbuild.variant import host_system

if TYPE_CHECKING:
    from kbuild.toolchains.torch_wheel import TorchWheel


TOOLCHAIN_NAMES = ("auto", "host", "wheels", "debian-nvcc")


def toolchain_source(
    options: BuildOptions, services: Services, torch_wheels: Sequence[TorchWheel] = ()
) -> ToolchainSource:
    """The source that the options name, with the headers that kernels depend on; it is asked once.

    Raises:
        UsageError: there is no source of that name.
    """
    make = partial(
        _compiler_source,
        options.toolchain,
        services.runner,
        services.cache,
        options.python,
        downloads=services.ui.downloads,
        is_portable=options.is_published,
    )
    compilers = make()
    if torch_wheels:
        from kbuild.toolchains.torch_wheel import TorchWheelToolchains

        by_wheel = [(wheel, make(supply=wheel)) for wheel in torch_wheels]
        compilers = TorchWheelToolchains(by_wheel, compilers)
    headers = HeaderResolver(options.sources, services.cache, services.runner)
    return CachedToolchains(ToolchainsWithHeaders(compilers, headers))


def _compiler_source(
    name: str,
    runner: Runner,
    cache: Path,
    python: Path | None,
    *,
    downloads: Downloads,
    supply: TorchWheel | None = None,
    is_portable: bool = True,
) -> ToolchainSource:
    """The source of compilers and frameworks.

    `auto` takes the Torch that is installed for C++ variants that it fits, wheels for everything
    else that they have, and the host's device compilers (nvcc, icpx, an installed ROCm) for the
    rest. With wheels, CUDA 12 is compiled by
    an installed toolkit, else by Debian's nvcc if its licence is accepted. It is `host` alone when
    an interpreter was asked for: its Torch is then what the user wants to build against. With
    `supply`, each of them builds against that Torch.

    Raises:
        UsageError: there is no source of that name.
    """
    host = HostToolchains(runner, FactCache(cache), python, supply=supply, is_portable=is_portable)
    if name not in TOOLCHAIN_NAMES:
        # A source of another distribution: a class that takes the host's toolchains.
        from importlib.metadata import entry_points

        known = {point.name: point for point in entry_points(group="kbuild.toolchains")}
        if name not in known:
            names = ", ".join((*TOOLCHAIN_NAMES, *sorted(known)))
            raise UsageError(f"`{name}` is not a toolchain", hint=f"one of {names}")
        source: ToolchainSource = known[name].load()(host)
        return source
    rocm = RocmToolchains(host, os.environ)
    if name == "host" or (name == "auto" and python is not None):
        return FallbackToolchains((host, rocm))
    if name == "debian-nvcc":
        return _debian_nvcc_source(runner, cache, python, downloads, supply)
    wheels = _wheel_source(runner, cache, python, downloads=downloads, supply=supply)
    if name == "wheels":
        return wheels
    return FallbackToolchains((replace(host, finder=None), wheels, host, rocm))


def _wheel_source(
    runner: Runner,
    cache: Path,
    python: Path | None,
    *,
    downloads: Downloads,
    supply: TorchWheel | None,
) -> ToolchainSource:
    """Wheels, and for CUDA 12 whatever nvcc there is."""
    from kbuild.store import open_store
    from kbuild.toolchains.cuda_toolkits import LocalCudaToolkits
    from kbuild.toolchains.experimental.debian_nvcc.toolchain import DebianNvccToolkits
    from kbuild.toolchains.wheels.installer import WheelInstaller
    from kbuild.toolchains.wheels.source import WheelToolchains

    installer = WheelInstaller(runner, open_store(cache), downloads=downloads)
    debian = DebianNvccToolkits(installer, cache)
    others = (LocalCudaToolkits(FactCache(cache), runner), debian)
    return WheelToolchains(runner, cache, python, downloads, others=others, supply=supply)


def _debian_nvcc_source(
    runner: Runner,
    cache: Path,
    python: Path | None,
    downloads: Downloads,
    supply: TorchWheel | None,
) -> ToolchainSource:
    """Debian's nvcc alone."""
    from kbuild.store import open_store
    from kbuild.toolchains.experimental.debian_nvcc.toolchain import (
        DebianNvccToolchains,
        DebianNvccToolkits,
    )
    from kbuild.toolchains.wheels.installer import WheelInstaller
    from kbuild.toolchains.wheels.source import WheelToolchains

    installer = WheelInstaller(runner, open_store(cache), downloads=downloads)
    toolkits = DebianNvccToolkits(installer, cache)
    wheels = WheelToolchains(runner, cache, python, downloads, others=(toolkits,), supply=supply)
    return DebianNvccToolchains(wheels, toolkits)


_SHOWN = 6


def open_torch_wheels(paths: Iterable[Path], cache: Path, runner: Runner) -> tuple[TorchWheel, ...]:
    """The wheels, each of a Torch release and backend of the matrix.

    Raises:
        ToolchainError: a file is not a Torch wheel for this machine, or is not in the matrix.
    """
    paths = tuple(dict.fromkeys(paths))
    if not paths:
        return ()
    from kbuild.toolchains.torch_wheel import open_wheel

    wheels = tuple(open_wheel(path, cache, runner) for path in paths)
    for wheel in wheels:
        _validate_in_matrix(wheel)
    return wheels


def validate_wheels_are_used(wheels: Sequence[TorchWheel], plans: Sequence[VariantPlan]) -> None:
    """A wheel that was given is meant to be built against.

    Raises:
        UsageError: one fits none of the variants that were chosen, or is for a GPU of a variant
            whose C++ knows none.
    """
    for wheel in wheels:
        _reject_for_dsl_variant(wheel, plans)
        if not any(wheel.fits(plan.requires) for plan in plans):
            raise UsageError(
                f"{wheel.name} is {wheel}, which none of the chosen variants is built against: "
                f"{_listed(plans)}",
                hint="choose a variant of its release and backend, or leave the wheel out; "
                "`kbuild list-variants --all` lists what there is",
            )


def _reject_for_dsl_variant(wheel: TorchWheel, plans: Sequence[VariantPlan]) -> None:
    """Launchers of kernels in DSLs are C++ for the stable ABI, built against Torch for the CPU."""
    fits = [plan for plan in plans if wheel.fits(plan.requires)]
    plain = [plan for plan in plans if plan.aot and plan.requires.backend != plan.backend]
    for plan in plain if not fits else ():
        if wheel.is_for(plan.backend, plan.parsed_variant.backend_version):
            raise UsageError(
                f"{wheel.name} is {wheel}, but {plan.variant} has kernels in Python DSLs alone: "
                f"their C++ is built against Torch {plan.requires.torch} for "
                f"{plan.requires.backend}, and runs on Torch for {plan.backend} as well",
                hint=f"give a wheel for {plan.requires.backend}, or leave it out; to try the "
                f"variant with this Torch, install it and run `kbuild check --python`",
            )


def _listed(plans: Sequence[VariantPlan]) -> str:
    names = [plan.variant for plan in plans]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none was chosen"


def _validate_in_matrix(wheel: TorchWheel) -> None:
    """A variant's name is made of releases in the matrix, and loads under those only."""
    here = [entry for entry in matrix_entries() if entry.system == host_system()]
    fits = [entry for entry in here if wheel.is_for(entry.backend, entry.backend_version)]
    if any(entry.torch == wheel.release for entry in fits):
        return
    if fits:
        known = f"has {wheel.backend} with Torch {_distinct(entry.torch for entry in fits)}"
    else:
        others = (e.backend_version for e in here if e.backend == wheel.backend)
        known = f"has {wheel.backend} {_distinct(filter(None, others)) or 'on other systems only'}"
    raise ToolchainError(
        f"{wheel.name} is {wheel}, which is not in kbuild's matrix: it {known}",
        hint="a variant is named after its releases, and the client loads it under these only; "
        "give a wheel of a release in the matrix, or use a newer kbuild",
    )


def _distinct(versions: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, versions)))

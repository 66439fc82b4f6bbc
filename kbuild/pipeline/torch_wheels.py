"""Torch wheels that the user gives: opened, and refused where they serve nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import ToolchainError, UsageError
from kbuild.matrix.data import entries
from kbuild.matrix.selection import host_system
from kbuild.plan import VariantPlan
from kbuild.run import Runner

if TYPE_CHECKING:
    from kbuild.toolchains.torch_wheel import TorchWheel

_SHOWN = 6


def given_wheels(paths: Iterable[Path], cache: Path, runner: Runner) -> tuple[TorchWheel, ...]:
    """The wheels, each of a Torch release and backend of the matrix.

    Args:
        paths: the files.
        cache: kbuild's cache folder.
        runner: see `open_wheel`.

    Raises:
        ToolchainError: a file is no Torch wheel for this machine, or the matrix lacks what it is.
    """
    paths = tuple(dict.fromkeys(paths))
    if not paths:
        return ()
    from kbuild.toolchains.torch_wheel import open_wheel

    wheels = tuple(open_wheel(path, cache, runner) for path in paths)
    for wheel in wheels:
        _refuse_outside_matrix(wheel)
    return wheels


def refuse_unused(wheels: Sequence[TorchWheel], plans: Sequence[VariantPlan]) -> None:
    """A wheel that was given is meant to be built against.

    Raises:
        UsageError: one fits none of the variants that were chosen, or is for a GPU of a variant
            whose C++ knows none.
    """
    for wheel in wheels:
        _refuse_for_dsls(wheel, plans)
        if not any(wheel.fits(made.requires) for made in plans):
            raise UsageError(
                f"{wheel.name} is {wheel}, which none of the chosen variants is built against: "
                f"{_listed(plans)}",
                hint="choose a variant of its release and backend, or leave the wheel out; "
                "`kbuild list-variants --all` lists what there is",
            )


def _refuse_for_dsls(wheel: TorchWheel, plans: Sequence[VariantPlan]) -> None:
    """Launchers of kernels in DSLs are C++ for the stable ABI, built against Torch for the CPU."""
    fits = [made for made in plans if wheel.fits(made.requires)]
    plain = [made for made in plans if made.aot and made.requires.backend != made.backend]
    for made in plain if not fits else ():
        if wheel.is_for(made.backend, made.parsed_variant.backend_version):
            raise UsageError(
                f"{wheel.name} is {wheel}, but {made.variant} has kernels in Python DSLs alone: "
                f"their C++ is built against Torch {made.requires.torch} for "
                f"{made.requires.backend}, and runs on Torch for {made.backend} as well",
                hint=f"give a wheel for {made.requires.backend}, or leave it out; to try the "
                f"variant with this Torch, install it and run `kbuild check --python`",
            )


def _listed(plans: Sequence[VariantPlan]) -> str:
    names = [made.variant for made in plans]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none was chosen"


def _refuse_outside_matrix(wheel: TorchWheel) -> None:
    """A variant's name is made of releases in the matrix, and loads under those only."""
    here = [entry for entry in entries() if entry.system == host_system()]
    fits = [entry for entry in here if wheel.is_for(entry.backend, entry.backend_version)]
    if any(entry.torch == wheel.release for entry in fits):
        return
    if fits:
        known = f"has {wheel.backend} with Torch {_joined(entry.torch for entry in fits)}"
    else:
        others = (e.backend_version for e in here if e.backend == wheel.backend)
        known = f"has {wheel.backend} {_joined(filter(None, others)) or 'on other systems only'}"
    raise ToolchainError(
        f"{wheel.name} is {wheel}, which is not in kbuild's matrix: it {known}",
        hint="a variant is named after its releases, and the client loads it under these only; "
        "give a wheel of a release in the matrix, or use a newer kbuild",
    )


def _joined(versions: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, versions)))

"""What languages have in common whose images are objects: archs, constants, whose object it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kbuild.backends.capability import Capability
from kbuild.errors import BuildError
from kbuild.languages.base import Resolved
from kbuild.languages.image import Image
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit

_DEFAULT = ("8.0", "9.0a", "10.0a", "12.0a")
"""Archs where the section says none. 8.6 and 8.9 run the code for 8.0."""
_ONE_CHIP = (9, 0)
"""From here on `9.0` means `9.0a`: what a kernel for that chip is written with."""


def cuda_targets(archs: Sequence[str] | None, able: Collection[str], distribution: str) -> Resolved:
    """Machine code for CUDA archs; objects hold one kind each, and no PTX.

    Args:
        archs: as `build.toml` says them; None when it does not.
        able: what the DSL compiles for: `8.0`, `9.0a`.
        distribution: the DSL's.
    """
    found: dict[Target, None] = {}
    notes: list[str] = []
    for arch in _DEFAULT if archs is None else archs:
        wanted = Capability.parse(arch)
        chip = wanted.base >= _ONE_CHIP and not wanted.feature
        name = f"{wanted.target}a" if chip else str(wanted.target)
        if name not in able:
            notes.append(f"{arch}: {distribution} is not known to compile for it; left out")
            continue
        if wanted.ptx:
            notes.append(
                f"{arch}: objects of {distribution} hold no PTX; later GPUs need a rebuild"
            )
        found[Target(f"sm_{name.replace('.', '')}", "cubin")] = None
    return Resolved(tuple(found), tuple(notes))


def judge_release(image: Image, distribution: str, wanted: str | None) -> None:
    """See `Language.judge`.

    Args:
        image: an object.
        distribution: the DSL's.
        wanted: the release that is pinned.
    """
    made = image.compiler.get(distribution)
    if made != wanted:
        raise BuildError(
            f"an object of `{image.entry}` was made by {distribution} {made}, and `toolchain` "
            f"pins {wanted}",
            hint="build it again; objects of two releases are not linked into one kernel",
        )


def constants_of(unit: Unit, bound: Bound) -> dict[str, Any]:
    """The constants that the function takes; a dtype is `{"dtype": <Torch's name>}`.

    A tuple is a list; its items are the constants `shape.0`, `shape.1`.
    """
    dtypes = {name: {"dtype": dtype} for name, dtype in unit.dtype_constants}
    constants = {**dict(unit.constants), **dtypes}
    found: dict[str, Any] = {name: constants[name] for name in bound.constants if name in constants}
    for name in bound.constants:
        count = sum(one.startswith(f"{name}.") for one in constants)
        if count and name not in found:
            found[name] = [constants[f"{name}.{index}"] for index in range(count)]
    return found

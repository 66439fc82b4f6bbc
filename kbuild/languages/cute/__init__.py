"""CuTe DSL: from pins and archs to targets, from a unit to what its worker compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.backends.capability import Capability
from kbuild.errors import BuildError, ToolchainError
from kbuild.languages.base import LANGUAGES, Language, Linked, Resolved
from kbuild.languages.cute.arguments import request_of
from kbuild.languages.cute.releases import DISTRIBUTION, OLDEST, release_of, version_of
from kbuild.languages.image import Image
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.version import Version

_DEFAULT = ("8.0", "9.0a", "10.0a", "12.0a")
"""Archs where the section says none. 8.6 and 8.9 run the code for 8.0."""
_ONE_CHIP = (9, 0)
"""From here on `9.0` means `9.0a`: what a kernel for that chip is written with."""
_FIRST_RUNTIME = Version.parse("12.8")
"""The CUDA runtime that has `cudaLibraryLoadData`; that of 12.6 lacks it."""
_ARCH = "CUTE_DSL_ARCH"
"""Read once, when the DSL is imported; a process that compiles for another arch makes broken
objects."""


@LANGUAGES.add
class Cute(Language):
    """Kernels with `@cute.jit`."""

    name = "cute"
    worker = "cute"

    def refuses(self, pins: Sequence[str]) -> str | None:
        """See `Language.refuses`."""
        version = version_of(pins)
        if version is None:
            return f'pins no exact release; write `toolchain = "{DISTRIBUTION}==4.8.1"`'
        if Version.parse(version) < OLDEST:
            return (
                f"pins {DISTRIBUTION} {version}, which compiles only where libcuda.so.1 is; "
                f"kernels are compiled with {OLDEST} and later"
            )
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> Resolved:
        """See `Language.targets`."""
        if backend != "cuda":
            return Resolved((), (f"CuTe DSL does not compile for {backend}",))
        if toolkit is not None and Version.parse(toolkit) < _FIRST_RUNTIME:
            return Resolved((), (_old_runtime(toolkit),))
        able = release_of(version_of(pins) or "").archs
        found: dict[Target, None] = {}
        notes: list[str] = []
        for arch in _DEFAULT if archs is None else archs:
            wanted = Capability.parse(arch)
            chip = wanted.base >= _ONE_CHIP and not wanted.feature
            name = f"{wanted.target}a" if chip else str(wanted.target)
            if name not in able:
                notes.append(f"{arch}: {DISTRIBUTION} does not compile for it; left out")
                continue
            if wanted.ptx:
                notes.append(f"{arch}: objects of CuTe DSL hold no PTX; later GPUs need a rebuild")
            found[Target(f"sm_{name.replace('.', '')}", "cubin")] = None
        return Resolved(tuple(found), tuple(notes))

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:
        """See `Language.environment`."""
        return release_of(version_of(pins) or "").environment(pins, flavour)

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """See `Language.variables`."""
        return {_ARCH: request["arch"]} if "arch" in request else {}

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> Linked:
        """See `Language.linked`."""
        archive = release_of(version_of(pins) or "").runtime(root, flavour)
        if not archive.is_file():
            raise ToolchainError(f"{DISTRIBUTION} brings no static runtime at {archive}")
        return Linked((archive,), cudart=flavour.removeprefix("cuda"))

    def licences(self, pins: Sequence[str]) -> Mapping[str, str]:
        """See `Language.licences`."""
        return {DISTRIBUTION: f"the static runtime of {DISTRIBUTION} {version_of(pins)}"}

    def judge(self, image: Image, pins: Sequence[str]) -> None:
        """See `Language.judge`."""
        made, wanted = image.compiler.get(DISTRIBUTION), version_of(pins)
        if made != wanted:
            raise BuildError(
                f"an object of `{image.entry}` was made by {DISTRIBUTION} {made}, and `toolchain` "
                f"pins {wanted}",
                hint="build it again; objects of two releases are not linked into one kernel",
            )

    def request(self, unit: Unit, bound: Bound) -> Mapping[str, Any]:
        """See `Language.request`."""
        return request_of(unit, bound, version_of(bound.toolchain) or "")


def _old_runtime(toolkit: str) -> str:
    return (
        f"objects of CuTe DSL need the CUDA runtime of {_FIRST_RUNTIME} or later, and that of "
        f'{toolkit} is what Torch brings; write `minver = "{_FIRST_RUNTIME}"` in `[general.cuda]`'
    )

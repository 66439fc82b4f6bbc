"""CuTe DSL: from pins and archs to targets, from a unit to what its worker compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.languages.base import LANGUAGES, Language, Linked, Resolved
from kbuild.languages.cute.arguments import request_of
from kbuild.languages.cute.releases import DISTRIBUTION, OLDEST, release_of, version_of
from kbuild.languages.image import Image
from kbuild.languages.linking import cuda_targets, judge_release
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.unit import Unit
from kbuild.version import Version

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
        return cuda_targets(archs, able, DISTRIBUTION)

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
        judge_release(image, DISTRIBUTION, version_of(pins))

    def request(self, unit: Unit, bound: Bound) -> Mapping[str, Any]:
        """See `Language.request`."""
        return request_of(unit, bound, version_of(bound.toolchain) or "")


def _old_runtime(toolkit: str) -> str:
    return (
        f"objects of CuTe DSL need the CUDA runtime of {_FIRST_RUNTIME} or later, and that of "
        f'{toolkit} is what Torch brings; write `minver = "{_FIRST_RUNTIME}"` in `[general.cuda]`'
    )

"""TileLang: from pins and archs to targets, from a unit to what its worker compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.languages.base import LANGUAGES, Function, Language, Linked, Resolved
from kbuild.languages.expand import expand
from kbuild.languages.image import Image
from kbuild.languages.linking import cuda_targets, judge_release
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Candidate, OpSpec
from kbuild.languages.target import CPU, Target
from kbuild.languages.tilelang.arguments import request_of
from kbuild.languages.tilelang.releases import (
    DISTRIBUTION,
    Release,
    known_releases,
    release_of,
    version_of,
)
from kbuild.languages.tilelang.sizes import with_sizes
from kbuild.languages.unit import Unit
from kbuild.version import Version

_NVCC, _HIPCC, _CXX = "KBUILD_NVCC", "KBUILD_HIPCC", "KBUILD_CXX"
_AMD = ("gfx90a", "gfx942", "gfx1100")
"""Archs where the section says none."""


@LANGUAGES.add
class TileLang(Language):
    """Kernels with `@tilelang.jit`, and functions that return a `T.prim_func`."""

    name = "tilelang"
    worker = "tilelang"

    def refuses(self, pins: Sequence[str]) -> str | None:
        """See `Language.refuses`."""
        version = version_of(pins)
        able = " or ".join(f"{DISTRIBUTION}=={known}" for known in known_releases())
        if version is None:
            return f'pins no exact release; write `toolchain = "{able}"`'
        if version not in known_releases():
            return (
                f"pins {DISTRIBUTION} {version}; kbuild rewrites what a release writes, and knows "
                f"{able} alone"
            )
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> Resolved:
        """See `Language.targets`."""
        release = _release(pins)
        if backend == "cpu":
            words = f"the code of {DISTRIBUTION} {release.version} for the CPU cannot be compiled"
            return Resolved((CPU,)) if release.cpu else Resolved((), (words,))
        if backend == "rocm":
            return _of_amd(archs, release)
        if backend != "cuda":
            return Resolved((), (f"TileLang has no code for {backend}",))
        needed = Version.parse(release.cuda).major
        if toolkit is not None and Version.parse(toolkit).major < needed:
            words = (
                f"objects of TileLang are compiled by CUDA {needed}'s nvcc; left out for {toolkit}"
            )
            return Resolved((), (words,))
        return cuda_targets(archs, release.archs, DISTRIBUTION)

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        return _release(pins).environment(pins)

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:
        """See `Language.programs`."""
        if flavour == "cpu":
            return {_CXX: "c++"}
        if flavour == "rocm":
            return {_HIPCC: "hip"}
        return {_NVCC: f"cuda-{_release(pins).cuda}", _CXX: "c++"}

    def program(self, pins: Sequence[str], flavour: str, target: Target) -> str | None:
        """See `Language.program`."""
        del flavour
        if target.kind == "hsaco":
            return "hip"
        return "c++" if target == CPU else f"cuda-{_release(pins).cuda}"

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> Linked:
        """See `Language.linked`."""
        del root, pins
        if flavour == "rocm":
            return Linked(hip=True)
        return Linked(cudart=flavour.removeprefix("cuda") if flavour.startswith("cuda") else "")

    def judge(self, image: Image, pins: Sequence[str]) -> None:
        """See `Language.judge`."""
        judge_release(image, DISTRIBUTION, version_of(pins))

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[Target],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[Unit, ...]:
        """Without the plain units: TileLang takes every address to be divisible by 16."""
        return tuple(unit for unit in expand(op, targets, candidates) if unit.aligned)

    def complete(
        self, op: OpSpec, functions: Mapping[str, Function], place: Place
    ) -> OpSpec | None:
        """See `Language.complete`."""
        del place
        return with_sizes(op, functions)

    def request(self, unit: Unit, bound: Bound) -> Mapping[str, Any]:
        """See `Language.request`."""
        return request_of(unit, bound, version_of(bound.toolchain) or "")


def _release(pins: Sequence[str]) -> Release:
    return release_of(version_of(pins) or known_releases()[-1])


def _of_amd(archs: Sequence[str] | None, release: Release) -> Resolved:
    wanted = [arch for arch in _AMD if arch in release.rocm] if archs is None else archs
    found = tuple(Target.parse(arch) for arch in wanted if arch in release.rocm)
    words = f"{DISTRIBUTION} {release.version} is not known to compile for it; left out"
    notes = tuple(f"{arch}: {words}" for arch in wanted if arch not in release.rocm)
    if not wanted:
        notes = (f"{DISTRIBUTION} {release.version} is not known to compile for AMD's GPUs",)
    return Resolved(found, notes)

"""What a language answers: what it compiles for, what its environment holds, what a unit asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from kbuild.languages.expand import expand
from kbuild.languages.image import Image
from kbuild.languages.spec.arguments import Bound, KernelParameter
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Candidate, OpSpec
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.registry import Registry
from kbuild.version import Version

Flavour = Literal["cuda12", "cuda13", "rocm", "cpu"]
_FIRST_OF_CUDA13 = 13


@dataclass(frozen=True)
class Resolved:
    """What the archs of a section come to."""

    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()
    """What was left out or put in another's place, and why: one sentence each."""


@dataclass(frozen=True)
class Function:
    """A kernel function of a source."""

    name: str
    parameters: tuple[KernelParameter, ...]
    candidates: tuple[Candidate, ...] = ()
    """The kernel's own, for `configs = "autotune"`."""
    key: tuple[str, ...] = ()
    """Arguments that the best candidate depends on, by the kernel's own words."""
    computed: tuple[str, ...] = ()
    """Constants that the kernel computes itself, by `@triton.heuristics`."""
    notes: tuple[str, ...] = ()
    """What of the kernel's own words was not followed, one sentence each."""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else a language's worker says, for its `complete`."""


@dataclass(frozen=True)
class Linked:
    """What objects are linked with, beside Torch."""

    archives: tuple[Path, ...] = ()
    """Static libraries of the author's own environment; kbuild neither keeps nor ships them."""
    cudart: str = ""
    """The major release of the CUDA runtime that they need; the one that Torch loads."""
    hip: bool = False
    """Whether they need the HIP runtime; the one that Torch loads."""


class Language:
    """A DSL whose kernels are compiled ahead of time."""

    name: ClassVar[str]
    worker: ClassVar[str]
    """What compiles: a module of `kbuild.languages.worker`, or the path of a file `*.py`."""

    def refuses(self, pins: Sequence[str]) -> str | None:
        """Why this toolchain cannot be used; None when it can.

        Args:
            pins: what `toolchain` says: `triton==3.9.0`.
        """
        raise NotImplementedError

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> Resolved:
        """What to compile for.

        Args:
            backend: `cuda`, `rocm` or `cpu`.
            archs: as `build.toml` says them, `8.0+PTX` or `gfx942`; None when it does not.
            toolkit: the variant's release of CUDA or ROCm.
            pins: see `refuses`.
        """
        raise NotImplementedError

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Every distribution that is installed in the environment, each at an exact version."""
        return tuple(pins)

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:
        """`requirements`, where they depend on the kind of machine code."""
        del flavour
        return self.requirements(pins)

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """Environment variables of the worker that can answer a request; others have others.

        Args:
            request: what `request` gives; empty when the worker describes a source.
        """
        del request
        return {}

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> Linked:
        """What objects of this language are linked with.

        Args:
            root: the environment.
            pins: see `refuses`.
            flavour: see `kbuild.languages.base.flavour`.

        Raises:
            ToolchainError: the environment lacks it.
        """
        del root, pins, flavour
        return Linked()

    def licences(self, pins: Sequence[str]) -> Mapping[str, str]:
        """Others' code that objects of this language are linked with: licence -> what, in words.

        The names are those of `kbuild.licences`.
        """
        del pins
        return {}

    def judge(self, image: Image, pins: Sequence[str]) -> None:
        """Raise a `BuildError` when an image cannot be of these pins."""
        del image, pins

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:
        """Which assemblers its workers use: environment variable -> a name in the environment.

        The names are those of `environment.Environments.assembler`.
        """
        del pins, flavour
        return {}

    def program(self, pins: Sequence[str], flavour: str, target: Target) -> str | None:
        """The one of `programs` that assembles for a target; None where there is none."""
        del pins, flavour, target
        return None

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[Target],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[Unit, ...]:
        """See `kbuild.languages.expand`."""
        return expand(op, targets, candidates)

    def complete(
        self, op: OpSpec, functions: Mapping[str, Function], place: Place
    ) -> OpSpec | None:
        """The op with what its kernel functions say themselves; None after an error.

        Args:
            op: as the section has it.
            functions: those of its sources, by name.
            place: collects what is wrong.
        """
        del functions, place
        return op

    def request(self, unit: Unit, bound: Bound) -> Mapping[str, Any]:
        """What the worker is asked to compile; the image depends on nothing else of the unit.

        Raises:
            KbuildError: the language cannot compile such a thing.
        """
        raise NotImplementedError


def flavour(backend: str, toolkit: str | None) -> Flavour:
    """Which assembler the variant's machine code has to come from."""
    if backend != "cuda":
        return "cpu" if backend == "cpu" else "rocm"
    newest = toolkit is None or Version.parse(toolkit).major >= _FIRST_OF_CUDA13
    return "cuda13" if newest else "cuda12"


LANGUAGES: Registry[Language] = Registry("kbuild.languages")
"""Every DSL, by the name that `language` says."""

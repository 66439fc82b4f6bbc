"""The interface of a DSL: supported versions, targets, environment, compile requests.

Also what DSLs share whose images are linked objects, and the parsing of `toolchain` pins.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from kbuild.backends.capability import Capability
from kbuild.ops.binding import BoundLaunch, KernelParameter
from kbuild.ops.dialects import DIALECTS, Dialect
from kbuild.ops.expand import expand
from kbuild.ops.image import KernelImage
from kbuild.ops.model import Candidate, IssueCollector, Launch, OpSpec
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.licences import Licence
from kbuild.system.errors import BuildError
from kbuild.system.registry import Registry
from kbuild.system.version import Version

if TYPE_CHECKING:
    from argparse import Namespace, _ArgumentGroup

    from kbuild.system.files import FileSet
    from kbuild.system.services import Services

Flavour = Literal["cuda12", "cuda13", "rocm", "cpu"]
_CUDA13_MAJOR = 13


@dataclass(frozen=True)
class ResolvedTargets:
    """What the archs of a section come to."""

    targets: tuple[ImageTarget, ...]
    notes: tuple[str, ...] = ()
    """What was left out or put in another's place, and why: one sentence each."""


@dataclass(frozen=True)
class KernelFunction:
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
class LinkInputs:
    """What objects are linked with, beside Torch."""

    archives: tuple[Path, ...] = ()
    """Static libraries of the author's own environment; kbuild neither keeps nor ships them."""
    cudart: str = ""
    """The major release of the CUDA runtime that they need; the one that Torch loads."""
    hip: bool = False
    """Whether they need the HIP runtime; the one that Torch loads."""


@dataclass(frozen=True)
class ExportedFiles:
    """What an action of `kbuild aot` writes."""

    files: FileSet
    folder: Path
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further keys of `--json`."""
    note: str = ""
    """What the user has to know of the files."""


class Exporter:
    """A DSL's part of `kbuild aot`; see `Language.exporter`."""

    actions: ClassVar[Mapping[str, str]]
    """Action -> its help. The first has the name of the DSL and takes the common options."""
    pin: ClassVar[str]
    """The toolchain when `--toolchain` names none."""

    def configure(self, group: _ArgumentGroup) -> None:
        """Declare the options of this DSL alone."""
        raise NotImplementedError

    def export(self, args: Namespace, services: Services) -> ExportedFiles:
        """Compile or link what the command line asks for.

        Raises:
            UsageError: an argument is missing or does not fit.
            BuildError: a source cannot be imported or compiled.
            ToolchainError: the toolchain cannot be had.
        """
        raise NotImplementedError


class Language(Dialect):
    """A DSL whose kernels are compiled ahead of time."""

    worker: ClassVar[str]
    """What compiles: a module of `kbuild.dsl.worker`, or the path of a file `*.py`."""

    init_backends: ClassVar[tuple[str, ...]] = ()
    """Backends that `kbuild init --language` writes a kernel for; the templates are a folder of the
    DSL's name in `templates/init/`, and a file in `templates/init/sections/`."""
    init_note: ClassVar[str] = ""
    """What an author has to know before publishing such a kernel."""
    data: ClassVar[Path | None] = None
    """Folder of a plug-in's data files: `init/`, written like `templates/init/`. None for kbuild's
    own DSLs."""
    licence_terms: ClassVar[tuple[Licence, ...]] = ()
    """The licences that `licences` names."""
    exporter_class: ClassVar[str] = ""
    """`module:class` of the exporter, which is imported when it is asked for."""
    materials: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Distribution -> `licence` and `enters`, as in `kbuild/pipeline/provenance/licences.toml`."""
    launch_runtime: ClassVar[Path | None] = None
    """Folder with the modules `_launch_*.py` that packages have in the place of the DSL where an
    author's Python launches kernels. None where launches cannot be captured."""
    captured_as: ClassVar[str] = ""
    """The language of the kernels that functions launch which `kbuild capture` runs; empty where it
    runs none."""
    capture_refusal: ClassVar[str] = ""
    """Why it runs none, as the end of a sentence."""
    launch_recorder: ClassVar[Path | None] = None
    """The `sitecustomize.py` that records launches; it reads `settings.json` beside it."""

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """What to compile for.

        Args:
            backend: `cuda`, `rocm` or `cpu`.
            archs: as `build.toml` says them, `8.0+PTX`; None when it does not.
            toolkit: the variant's release of CUDA or ROCm.
            pins: see `refuses`.
        """
        raise NotImplementedError

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Every distribution that is installed in the environment, each at an exact version."""
        return tuple(pins)

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:  # noqa: ARG002
        """`requirements`, where they depend on the kind of machine code."""
        return self.requirements(pins)

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """Environment variables of the worker that can answer a request; others have others.

        The request is empty when the worker describes a source.
        """
        return {}

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:  # noqa: ARG002
        """What objects of this language are linked with; `root` is the environment.

        Raises:
            ToolchainError: the environment lacks it.
        """
        return LinkInputs()

    def licences(self, pins: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002
        """Others' code that objects of this language are linked with: licence -> description.

        The names are those of `licence_terms`.
        """
        return {}

    def validate_image(self, image: KernelImage, pins: Sequence[str]) -> None:
        """Raise a `BuildError` when an image cannot be of these pins."""

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:  # noqa: ARG002
        """Which assemblers its workers use: environment variable -> a name in the environment.

        The names are those of `environment.DslEnvironments.assembler`.
        """
        return {}

    def program(
        self,
        pins: Sequence[str],  # noqa: ARG002
        flavour: str,  # noqa: ARG002
        target: ImageTarget,  # noqa: ARG002
    ) -> str | None:
        """The one of `programs` that assembles for a target; None where there is none."""
        return None

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[ImageTarget],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[KernelUnit, ...]:
        """See `kbuild.ops.expand`."""
        return expand(op, targets, candidates)

    def complete(
        self,
        op: OpSpec,
        functions: Mapping[str, KernelFunction],  # noqa: ARG002
        place: IssueCollector,  # noqa: ARG002
    ) -> OpSpec | None:
        """The op with what its kernel functions say themselves; None after an error at `place`."""
        return op

    def exporter(self) -> Exporter | None:
        """This DSL's part of `kbuild aot`; None where it has none."""
        module, _, name = self.exporter_class.partition(":")
        exporter: Exporter | None = (
            getattr(importlib.import_module(module), name)() if name else None
        )
        return exporter

    def jit_source(self, op: OpSpec, launches: Sequence[tuple[Launch, BoundLaunch]]) -> str:
        """Python source of the function `_jit_<op>`, which launches kernels with the DSL itself.

        It follows `kbuild.dsl.python_package.JIT_HEAD`. Only languages with
        `has_jit_fallback` are asked. Launches have their real candidates.
        """
        raise NotImplementedError

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """The request to the worker; the image depends on nothing else of the unit.

        Raises:
            KbuildError: the language cannot compile such a thing.
        """
        raise NotImplementedError


def flavour_of(backend: str, toolkit: str | None) -> Flavour:
    """Which assembler the variant's machine code has to come from."""
    if backend != "cuda":
        return "cpu" if backend == "cpu" else "rocm"
    newest = toolkit is None or Version.parse(toolkit).major >= _CUDA13_MAJOR
    return "cuda13" if newest else "cuda12"


LANGUAGES = cast("Registry[Language]", DIALECTS)
"""Every DSL, by the name that `language` says."""


def find_licence(name: str) -> Licence:
    """The licence of that name; its title is the name where no DSL knows it."""
    terms = (licence for language in LANGUAGES for licence in language.licence_terms)
    return next((licence for licence in terms if licence.name == name), Licence(name, name, ""))


@cache
def read_facts(file: Path) -> Mapping[str, Any]:
    """The facts in a TOML file of this package."""
    import tomli

    facts: Mapping[str, Any] = tomli.loads(file.read_text("utf-8"))
    return facts


def release_facts(file: Path, version: str) -> Mapping[str, Any]:
    """The facts that hold for a version: those of the newest release in the file up to it."""
    wanted, rows = Version.parse(version), read_facts(file)["release"]
    known = [row for row in rows if Version.parse(row["since"]) <= wanted]
    facts: Mapping[str, Any] = known[-1] if known else rows[0]
    return facts


NUMBERS = r"\d+\.\d+(?:\.\d+)*"
"""A regular expression of releases such as `3.9.0`."""


def pinned_version(distribution: str, pins: Sequence[str], form: str = NUMBERS) -> str | None:
    """The exact release of a distribution that is pinned; `form` is a regular expression of it."""
    pin = re.compile(f"{re.escape(distribution)}==({form})")
    matches = (pin.fullmatch(requirement.replace(" ", "")) for requirement in pins)
    return next((match[1] for match in matches if match), None)


def with_companions(
    distribution: str, pins: Sequence[str], companions: Iterable[str]
) -> tuple[str, ...]:
    """Every distribution of an environment, the DSL first.

    `pins` of the section take the place of `companions`, which the release needs beside itself.
    """
    own = {_distribution_name(pin): pin.replace(" ", "") for pin in pins}
    first = own.pop(distribution)
    return (first, *({**{_distribution_name(pin): pin for pin in companions}, **own}).values())


def _distribution_name(pin: str) -> str:
    return pin.partition("==")[0].strip().lower().replace("_", "-")


_DEFAULT_ARCHS = ("8.0", "9.0a", "10.0a", "12.0a")
"""Archs where the section says none. 8.6 and 8.9 run the code for 8.0."""
_FIRST_ARCH_SPECIFIC = (9, 0)
"""From here on `9.0` means `9.0a`: what a kernel for that chip is written with."""


def cuda_targets(
    archs: Sequence[str] | None, able: Collection[str], distribution: str
) -> ResolvedTargets:
    """Machine code for the archs of a section, or for the default ones; objects hold no PTX.

    `able` is what the DSL compiles for: `8.0`, `9.0a`.
    """
    targets: dict[ImageTarget, None] = {}
    notes: list[str] = []
    for arch in _DEFAULT_ARCHS if archs is None else archs:
        wanted = Capability.parse(arch)
        chip = wanted.base >= _FIRST_ARCH_SPECIFIC and not wanted.feature
        name = f"{wanted.target}a" if chip else str(wanted.target)
        if name not in able:
            notes.append(f"{arch}: {distribution} is not known to compile for it; left out")
            continue
        if wanted.ptx:
            what = f"objects of {distribution} hold no PTX"
            notes.append(f"{arch}: {what}; later GPUs need a rebuild")
        targets[ImageTarget(f"sm_{name.replace('.', '')}", "cubin")] = None
    return ResolvedTargets(tuple(targets), tuple(notes))


def validate_release(image: KernelImage, distribution: str, wanted: str | None) -> None:
    """See `Language.judge`; `wanted` is the release that is pinned."""
    release = image.compiler.get(distribution)
    if release != wanted:
        raise BuildError(
            f"an object of `{image.entry}` was made by {distribution} {release}, and `toolchain` "
            f"pins {wanted}",
            hint="build it again; kbuild does not link objects of two releases into one kernel",
        )


def constants_of(unit: KernelUnit, bound: BoundLaunch) -> dict[str, Any]:
    """The constants that the function takes; a dtype is `{"dtype": <Torch's name>}`.

    A tuple is a list; its items are the constants `shape.0`, `shape.1`.
    """
    dtypes = {name: {"dtype": dtype} for name, dtype in unit.dtype_constants}
    constants = {**dict(unit.constants), **dtypes}
    values: dict[str, Any] = {}
    for name in bound.constants:
        count = sum(constant.startswith(f"{name}.") for constant in constants)
        if name in constants:
            values[name] = constants[name]
        elif count:
            values[name] = [constants[f"{name}.{index}"] for index in range(count)]
    return values

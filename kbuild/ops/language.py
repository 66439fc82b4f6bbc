"""The interface of a DSL: supported versions, targets, environment, compile requests.

Also functions for DSLs whose images are linked objects, and for reading `toolchain` pins.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from kbuild.backends import rocm
from kbuild.backends.capability import Capability
from kbuild.ops.bound_launch import BoundLaunch, KernelParameter
from kbuild.ops.dialects import DIALECTS, Dialect
from kbuild.ops.expand import expand
from kbuild.ops.image import KernelImage
from kbuild.ops.model import OpSpec
from kbuild.ops.steps import Candidate, Launch
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
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
    """The targets of a section's archs."""

    targets: tuple[ImageTarget, ...]
    notes: tuple[str, ...] = ()
    """Sentences about archs that were left out or replaced, with reasons."""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel function of a source."""

    name: str
    parameters: tuple[KernelParameter, ...]
    candidates: tuple[Candidate, ...] = ()
    """The kernel's own candidates, for `configs = "autotune"`."""
    key: tuple[str, ...] = ()
    """Arguments that the best candidate depends on, as the source declares them."""
    computed: tuple[str, ...] = ()
    """Constants that the source computes, by `@triton.heuristics`."""
    notes: tuple[str, ...] = ()
    """Sentences about parts of the source that were not followed."""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further facts from the worker, for the language's `complete`."""


@dataclass(frozen=True)
class LinkInputs:
    """Libraries that objects are linked with, in addition to Torch."""

    archives: tuple[Path, ...] = ()
    """Static libraries in the DSL's environment; kbuild neither keeps nor ships them."""
    cudart: str = ""
    """Major release of the CUDA runtime that they need, which Torch loads; empty for none."""
    hip: bool = False
    """True if they need the HIP runtime, which Torch loads."""


@dataclass(frozen=True)
class ExportedFiles:
    """The files that an action of `kbuild aot` writes."""

    files: FileSet
    folder: Path
    facts: Mapping[str, str] = field(default_factory=dict)
    """Additional keys of `--json`."""
    note: str = ""
    """Message for the user about the files."""


class Exporter:
    """A DSL's part of `kbuild aot`; see `Language.exporter`."""

    actions: ClassVar[Mapping[str, str]]
    """Action -> its help. The first has the name of the DSL and takes the common options."""
    pin: ClassVar[str]
    """Toolchain if `--toolchain` is not given."""

    def configure(self, group: _ArgumentGroup) -> None:
        """Declare the options of this DSL."""
        raise NotImplementedError

    def export(self, args: Namespace, services: Services) -> ExportedFiles:
        """Compile or link according to the command line.

        Raises:
            UsageError: an argument is missing or does not fit.
            BuildError: a source cannot be imported or compiled.
            ToolchainError: the toolchain cannot be installed.
        """
        raise NotImplementedError


class Language(Dialect):
    """A DSL whose kernels are compiled ahead of time."""

    worker: ClassVar[str]
    """Module of `kbuild.dsl.worker` that compiles, or path of a Python file."""

    init_backends: ClassVar[tuple[str, ...]] = ()
    """Backends that `kbuild init --language` writes a kernel for; the templates are a folder of the
    DSL's name in `templates/init/`, and a file in `templates/init/sections/`."""
    init_note: ClassVar[str] = ""
    """Note for authors about publishing such a kernel."""
    data: ClassVar[Path | None] = None
    """Folder of a plug-in's data files: `init/`, written like `templates/init/`. None for kbuild's
    own DSLs."""
    licence_terms: ClassVar[tuple[Licence, ...]] = ()
    """The licences whose names `licences` returns."""
    exporter_class: ClassVar[str] = ""
    """`module:class` of the exporter, imported on demand; empty if there is none."""
    has_host_code: ClassVar[bool] = False
    """True if images have code for the processor."""
    compiles_for_other_hosts: ClassVar[bool] = False
    """True if that code can be compiled for another processor than this machine's."""

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """Return the targets for the archs of a section.

        Args:
            backend: `cuda`, `rocm` or `cpu`.
            archs: archs of `build.toml`, such as `8.0+PTX`; None if it has none.
            toolkit: the variant's release of CUDA or ROCm.
            pins: see `unsupported_reason`.
        """
        raise NotImplementedError

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Exact pins of all distributions in the environment."""
        return tuple(pins)

    def environment(self, pins: Sequence[str], flavour: str) -> tuple[str, ...]:  # noqa: ARG002
        """The `requirements`, if they depend on the kind of machine code."""
        return self.requirements(pins)

    def variables(self, request: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG002
        """Environment variables of the worker for a request.

        Requests with different variables go to different workers. The request is empty when a
        source is described.
        """
        return {}

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:  # noqa: ARG002
        """Return the libraries that objects are linked with; `root` is the environment.

        Raises:
            ToolchainError: the environment lacks one.
        """
        return LinkInputs()

    def licences(self, pins: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002
        """Third-party code that objects are linked with: licence -> description.

        The names are those of `licence_terms`.
        """
        return {}

    def validate_image(self, image: KernelImage, pins: Sequence[str]) -> None:
        """Raise a BuildError if an object was made by another release than the pinned one."""
        distribution = self.distributions[0]
        release, wanted = image.compiler.get(distribution), pinned_version(distribution, pins, ".+")
        if image.kind == "object" and release != wanted:
            raise BuildError(
                f"an object of `{image.entry}` was made by {distribution} {release}, and "
                f"`toolchain` pins {wanted}",
                hint="build it again; kbuild does not link objects of two releases into one kernel",
            )

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:  # noqa: ARG002
        """Assemblers of the workers: environment variable -> name in the environment.

        The names are those of `environment.DslEnvironments.assembler`.
        """
        return {}

    def program(
        self,
        pins: Sequence[str],  # noqa: ARG002
        flavour: str,  # noqa: ARG002
        target: ImageTarget,  # noqa: ARG002
    ) -> str | None:
        """The one of `programs` that assembles for a target; None if there is none."""
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
        """Complete the op with facts of its kernel functions; None after an error at `place`."""
        return op

    def exporter(self) -> Exporter | None:
        """Return the DSL's exporter for `kbuild aot`; None if it has none."""
        module, _, name = self.exporter_class.partition(":")
        exporter: Exporter | None = (
            getattr(importlib.import_module(module), name)() if name else None
        )
        return exporter

    def jit_source(self, op: OpSpec, launches: Sequence[tuple[Launch, BoundLaunch]]) -> str:
        """Generate the Python function `_jit_<op>`, which launches kernels with the DSL itself.

        It follows `templates/package/jit_head.py`. Only languages with
        `has_jit_fallback` implement it. Launches have their final candidates.
        """
        raise NotImplementedError

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """Return the request to the worker; the image depends on nothing else of the unit.

        Raises:
            KbuildError: the language does not support the unit.
        """
        raise NotImplementedError

    def label(self, unit: KernelUnit) -> Sequence[str]:
        """Return the parts that describe a unit in messages."""
        return usual_label(unit)


def usual_label(unit: KernelUnit) -> Sequence[str]:
    """Return the function, target, dtypes and constants of a unit."""
    constants = [f"{name}={value}" for name, value in (*unit.constants, *unit.options)]
    dtypes = dict.fromkeys(dtype for _, dtype in unit.dtypes)
    return (unit.functions[0], str(unit.target), *dtypes, *constants)


def flavour_of(backend: str, toolkit: str | None) -> Flavour:
    """Flavour of machine code that the variant's toolkit can load."""
    if backend != "cuda":
        return "cpu" if backend == "cpu" else "rocm"
    newest = toolkit is None or Version.parse(toolkit).major >= _CUDA13_MAJOR
    return "cuda13" if newest else "cuda12"


def split_flavour(flavour: str) -> tuple[str, str]:
    """Split `cuda13-aarch64-linux` into the kind of machine code and the system of host code.

    The system is empty for this machine's, and where images have no host code.
    """
    kind, _, system = flavour.partition("-")
    return kind, system


LANGUAGES = cast("Registry[Language]", DIALECTS)
"""Every DSL by the value of `language`; the same registry as `DIALECTS`."""


def find_licence(name: str) -> Licence:
    """The licence of that name; its title is the name if no DSL has it."""
    terms = (licence for language in LANGUAGES for licence in language.licence_terms)
    return next((licence for licence in terms if licence.name == name), Licence(name, name, ""))


@cache
def read_facts(file: Path) -> Mapping[str, Any]:
    """Facts in a TOML file of this package."""
    import tomli

    facts: Mapping[str, Any] = tomli.loads(file.read_text("utf-8"))
    return facts


def release_facts(file: Path, version: str) -> Mapping[str, Any]:
    """Facts for a version: those of the newest release in the file that is not later."""
    wanted, rows = Version.parse(version), read_facts(file)["release"]
    matching = [row for row in rows if Version.parse(row["since"]) <= wanted]
    facts: Mapping[str, Any] = matching[-1] if matching else rows[0]
    return facts


NUMBERS = r"\d{1,18}\.\d{1,18}(?:\.\d{1,18})*"
"""Regular expression for releases such as `3.9.0`."""


def pinned_version(distribution: str, pins: Sequence[str], form: str = NUMBERS) -> str | None:
    """Exact release of a distribution in the pins; `form` is a regular expression for it."""
    pin = re.compile(f"{re.escape(distribution)}==({form})")
    matches = (pin.fullmatch(requirement.replace(" ", "")) for requirement in pins)
    return next((match[1] for match in matches if match), None)


def with_companions(
    distribution: str, pins: Sequence[str], companions: Iterable[str]
) -> tuple[str, ...]:
    """Pins of all distributions of an environment, the DSL first.

    `companions` are the other distributions that the release needs; the section's `pins` win.
    """
    own = {_distribution_name(pin): pin.replace(" ", "") for pin in pins}
    # The first pin gives the environment its version, see `DslEnvironments.provide`.
    first = own.pop(distribution)
    return (first, *({**{_distribution_name(pin): pin for pin in companions}, **own}).values())


def _distribution_name(pin: str) -> str:
    return pin.partition("==")[0].strip().lower().replace("_", "-")


_DEFAULT_ARCHS = ("8.0", "9.0a", "10.0a", "12.0a")
"""Default archs. 8.6 and 8.9 run the code for 8.0."""
_FIRST_ARCH_SPECIFIC = (9, 0)
"""First capability that means its chip, `9.0a`, whose features kernels use."""


def cuda_targets(
    archs: Sequence[str] | None, able: Collection[str], distribution: str
) -> ResolvedTargets:
    """Return targets for the archs of a section, or default ones; objects contain no PTX.

    `able` are the archs that the DSL supports: `8.0`, `9.0a`.
    """
    targets: dict[ImageTarget, None] = {}
    notes: list[str] = []
    for arch in _DEFAULT_ARCHS if archs is None else archs:
        wanted = Capability.parse(arch)
        is_chip = wanted.base >= _FIRST_ARCH_SPECIFIC and not wanted.feature
        name = f"{wanted.target}a" if is_chip else str(wanted.target)
        if name not in able:
            notes.append(f"{arch}: {distribution} is not known to compile for it; left out")
            continue
        if wanted.ptx:
            what = f"objects of {distribution} hold no PTX"
            notes.append(f"{arch}: {what}; later GPUs need a rebuild")
        targets[ImageTarget(f"sm_{name.replace('.', '')}", "cubin")] = None
    return ResolvedTargets(tuple(targets), tuple(notes))


def rocm_targets(archs: Sequence[str] | None, able: Collection[str], name: str) -> ResolvedTargets:
    """Return targets for the archs of a section, or default ones.

    `able` are the archs that the DSL compiles for, and `name` is the DSL's in notes.
    """
    wanted = [arch for arch in rocm.MAIN_ARCHS if arch in able] if archs is None else archs
    if not wanted:
        return ResolvedTargets((), (f"{name} is not known to compile for AMD's GPUs",))
    message = f"{name} is not known to compile for it; left out"
    return ResolvedTargets(
        tuple(ImageTarget.parse(arch) for arch in wanted if arch in able),
        tuple(f"{arch}: {message}" for arch in wanted if arch not in able),
    )


def constants_of(unit: KernelUnit, bound: BoundLaunch) -> dict[str, Any]:
    """Return the constants that the function takes; a dtype is `{"dtype": <Torch's name>}`.

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

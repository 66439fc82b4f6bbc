"""TileLang: its releases.

What they compile for, the sizes that are constants of the code, and what the worker is asked
for one unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.errors import BuildError
from kbuild.languages.base import (
    LANGUAGES,
    KernelFunction,
    Language,
    LinkInputs,
    ResolvedTargets,
    constants_of,
    cuda_targets,
    pinned_version,
    validate_release,
    with_companions,
)
from kbuild.languages.expand import expand
from kbuild.languages.image import KernelImage
from kbuild.languages.unit import CPU_TARGET, ImageTarget, KernelUnit
from kbuild.ops.binding import BoundLaunch
from kbuild.ops.expression import parse
from kbuild.ops.model import (
    ArgumentSource,
    Candidate,
    Constant,
    IssueCollector,
    Launch,
    OpSpec,
    TuneProposal,
)
from kbuild.version import Version

_ASSUMED = ("divisible", "ones", "int64")


def request_of(unit: KernelUnit, bound: BoundLaunch, version: str) -> Mapping[str, Any]:
    """See `Language.request`.

    Args:
        unit: what is compiled.
        bound: its function, with what the op says of its tensors.
        version: of the DSL.

    Raises:
        BuildError: an argument cannot be passed to a TileLang function.
    """
    for key in _ASSUMED:
        if getattr(unit, key):
            what = f"`{bound.function}`: `{key}` has no effect in TileLang"
            raise BuildError(
                what, hint="fix the dimension with `T.const`, or declare its type in the kernel"
            )
    return {
        "kernel": unit.kernel,
        "function": bound.function,
        "version": version,
        "arch": unit.target.arch,
        "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
        "constants": constants_of(unit, bound),
    }


def _argument(
    name: str, source: ArgumentSource, unit: KernelUnit, bound: BoundLaunch
) -> dict[str, Any]:
    if source.kind in ("int", "float", "bool"):
        return {"name": name, "kind": source.kind}
    if source.kind != "tensor":
        what = f"`{bound.function}` takes no {source.kind} as `{name}`"
        raise BuildError(what, hint="pass tensors and numbers")
    if source.name in unit.absent:
        what = f"`{bound.function}` takes `{source.name}`, which may be None"
        raise BuildError(what, hint="write a second function without it, and select it with `when`")
    facts = bound.facts(source.name)
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dict(unit.dtypes)[source.name],
        "dims": None if facts.dims is None else list(facts.dims),
        "contiguous": facts.contiguous,
    }


DISTRIBUTION = "tilelang"
_FILE = Path(__file__).with_name("releases.toml")
_FORM = r"\d+(?:\.\d+)*(?:\.post\d+)?"


@dataclass(frozen=True)
class TileLangRelease:
    """One release."""

    version: str
    archs: tuple[str, ...]
    """Capabilities: `8.0`, `9.0a`."""
    rocm: tuple[str, ...]
    """AMD's archs: `gfx942`."""
    cpu: bool
    """Whether a C++ compiler takes its code for the CPU."""
    cuda: str
    """Release of CUDA whose nvcc compiles: `13.0`."""
    pins: tuple[str, ...]
    """The other distributions of its environment."""

    def environment(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Every distribution of the environment, the DSL first.

        Args:
            pins: of the section; they replace those of the facts.
        """
        return with_companions(DISTRIBUTION, pins, self.pins)


def version_of(pins: Sequence[str]) -> str | None:
    """The exact release that is pinned."""
    return pinned_version(DISTRIBUTION, pins, _FORM)


def known_releases() -> tuple[str, ...]:
    """Versions, the oldest first."""
    return tuple(_rows())


def release_of(version: str) -> TileLangRelease:
    """The facts of a known release.

    Raises:
        KeyError: nothing is known of it.
    """
    row = _rows()[version]
    return TileLangRelease(
        version,
        tuple(row["archs"]),
        tuple(row["rocm"]),
        row["cpu"],
        row["cuda"],
        tuple(row["pins"]),
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    import tomli

    facts = tomli.loads(_FILE.read_text("utf-8"))
    return {row["version"]: row for row in facts["release"]}


def with_sizes(op: OpSpec, functions: Mapping[str, KernelFunction]) -> OpSpec:
    """The op with values for each `T.const` that the section does not speak of.

    They are those that the dimension has in the cases that the op is tuned for. Where it has none,
    ordinary sizes are tuned for, and of the constants those that there are objects for.

    Args:
        op: the op as the section has it.
        functions: those of its sources, by name.
    """
    launches = tuple(_with_sizes(op, launch, functions) for launch in op.launches)
    proposals = tuple(dict.fromkeys(each for launch in launches for each in _proposals(op, launch)))
    kept_proposals = proposals if any(proposal.sizes for proposal in proposals) else ()
    return replace(op, launches=launches, tune=replace(op.tune, proposals=kept_proposals))


def _with_sizes(op: OpSpec, launch: Launch, functions: Mapping[str, KernelFunction]) -> Launch:
    function = next((functions[name] for name in launch.functions if name in functions), None)
    if function is None:
        return launch
    constants = tuple(_missing(op, launch, function))
    return replace(launch, constants=(*launch.constants, *constants)) if constants else launch


def _missing(op: OpSpec, launch: Launch, function: KernelFunction) -> Iterator[Constant]:
    candidates = function.candidates if launch.autotune else launch.candidates
    known = {constant.name for constant in launch.constants}
    known |= {name for candidate in candidates for name, _ in candidate.constants}
    for parameter in function.parameters:
        is_open = parameter.has_value and parameter.name not in function.facts.get("consts", ())
        if not parameter.is_constant or is_open or parameter.name in known:
            continue
        size = _called(op, launch, function.facts.get("dimensions", {}), parameter.name)
        values = tuple(dict.fromkeys(_values(op, size)))
        if values:
            yield Constant(parameter.name, expression=parse(size), choices=values)


def _called(
    op: OpSpec, launch: Launch, dimensions: Mapping[str, Sequence[str]], constant: str
) -> str:
    """What the op calls the dimension; empty when it has no name for it."""
    written = {name: source.name for name, source in launch.args if source.kind == "tensor"}
    sizes = {size.name for size in op.sizes}
    for argument, names in dimensions.items():
        rule = op.shape(written.get(argument, argument))
        dims = rule.dims if rule is not None else ()
        if None in dims or constant not in names or len(dims) != len(names):
            continue
        dimension = str(dims[list(names).index(constant)])
        if dimension in sizes:
            return dimension
    return ""


def _values(op: OpSpec, size: str) -> Iterator[int]:
    for case in op.tune.cases:
        value = dict(case).get(size)
        if isinstance(value, int) and not isinstance(value, bool):
            yield value


def _proposals(op: OpSpec, launch: Launch) -> Iterator[TuneProposal]:
    """Every combination of the sizes that a launch has objects for."""
    sizes = {size.name for size in op.sizes}
    fixed = {
        str(constant.expression): [int(value) for value in constant.choices]
        for constant in launch.constants
        if constant.choices and str(constant.expression) in sizes
    }
    for values in itertools.product(*fixed.values()):
        yield TuneProposal(tuple(zip(fixed, values, strict=True)))


_NVCC, _HIPCC, _CXX = "KBUILD_NVCC", "KBUILD_HIPCC", "KBUILD_CXX"
_AMD = ("gfx90a", "gfx942", "gfx1100")
"""Archs where the section says none."""


@LANGUAGES.add
class TileLang(Language):
    """Kernels with `@tilelang.jit`, and functions that return a `T.prim_func`."""

    name = "tilelang"
    worker = "tilelang"
    distributions = (DISTRIBUTION,)
    needs_grid = False
    own_candidates = True
    on_cpu = True
    init_backends = ("cpu", "cuda")

    def refuses(self, pins: Sequence[str]) -> str | None:
        """See `Language.refuses`."""
        version = version_of(pins)
        able = " or ".join(f"{DISTRIBUTION}=={known}" for known in known_releases())
        if version is None:
            return f'pins no exact release; write `toolchain = "{able}"`'
        if version not in known_releases():
            return (
                f"pins {DISTRIBUTION} {version}; kbuild rewrites the generated code, and supports "
                f"only {able}"
            )
        return None

    def targets(
        self, backend: str, archs: Sequence[str] | None, toolkit: str | None, pins: Sequence[str]
    ) -> ResolvedTargets:
        """See `Language.targets`."""
        release = _release(pins)
        if backend == "cpu":
            message = f"the code of {DISTRIBUTION} {release.version} for the CPU cannot be compiled"
            return (
                ResolvedTargets((CPU_TARGET,)) if release.cpu else ResolvedTargets((), (message,))
            )
        if backend == "rocm":
            return _of_amd(archs, release)
        if backend != "cuda":
            return ResolvedTargets((), (f"TileLang has no code for {backend}",))
        needed = Version.parse(release.cuda).major
        if toolkit is not None and Version.parse(toolkit).major < needed:
            message = (
                f"objects of TileLang are compiled by CUDA {needed}'s nvcc; left out for {toolkit}"
            )
            return ResolvedTargets((), (message,))
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

    def program(self, pins: Sequence[str], flavour: str, target: ImageTarget) -> str | None:
        """See `Language.program`."""
        del flavour
        if target.kind == "hsaco":
            return "hip"
        return "c++" if target == CPU_TARGET else f"cuda-{_release(pins).cuda}"

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:
        """See `Language.linked`."""
        del root, pins
        if flavour == "rocm":
            return LinkInputs(hip=True)
        return LinkInputs(cudart=flavour.removeprefix("cuda") if flavour.startswith("cuda") else "")

    def judge(self, image: KernelImage, pins: Sequence[str]) -> None:
        """See `Language.judge`."""
        validate_release(image, DISTRIBUTION, version_of(pins))

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[ImageTarget],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[KernelUnit, ...]:
        """Without the plain units: TileLang takes every address to be divisible by 16."""
        return tuple(unit for unit in expand(op, targets, candidates) if unit.aligned)

    def complete(
        self, op: OpSpec, functions: Mapping[str, KernelFunction], place: IssueCollector
    ) -> OpSpec | None:
        """See `Language.complete`."""
        del place
        return with_sizes(op, functions)

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        return request_of(unit, bound, version_of(bound.toolchain) or "")


def _release(pins: Sequence[str]) -> TileLangRelease:
    return release_of(version_of(pins) or known_releases()[-1])


def _of_amd(archs: Sequence[str] | None, release: TileLangRelease) -> ResolvedTargets:
    wanted = [arch for arch in _AMD if arch in release.rocm] if archs is None else archs
    targets = tuple(ImageTarget.parse(arch) for arch in wanted if arch in release.rocm)
    message = f"{DISTRIBUTION} {release.version} is not known to compile for it; left out"
    notes = tuple(f"{arch}: {message}" for arch in wanted if arch not in release.rocm)
    if not wanted:
        notes = (f"{DISTRIBUTION} {release.version} is not known to compile for AMD's GPUs",)
    return ResolvedTargets(targets, notes)

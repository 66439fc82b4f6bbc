"""TileLang: its targets, sizes that become constants, and requests for the worker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expand import expand
from kbuild.ops.expression import parse
from kbuild.ops.language import (
    LANGUAGES,
    KernelFunction,
    Language,
    LinkInputs,
    ResolvedTargets,
    constants_of,
    cuda_targets,
    pinned_version,
    read_facts,
    rocm_targets,
    with_companions,
)
from kbuild.ops.model import OpSpec, TuneProposal
from kbuild.ops.steps import ArgumentSource, Candidate, Constant, Launch
from kbuild.ops.unit import CPU_TARGET, ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from kbuild.system.version import Version

_ASSUMED = ("divisible", "ones", "int64")


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
_FORM = r"\d{1,18}(?:\.\d{1,18})*(?:\.post\d+)?"


def version_of(pins: Sequence[str]) -> str | None:
    """The exact release that is pinned."""
    return pinned_version(DISTRIBUTION, pins, _FORM)


def _releases() -> Mapping[str, Mapping[str, Any]]:
    """The facts of each known release, the oldest first."""
    return {row["version"]: row for row in read_facts(_FILE)["release"]}


def _release(pins: Sequence[str]) -> Mapping[str, Any]:
    known = _releases()
    return known[version_of(pins) or [*known][-1]]


def with_sizes(op: OpSpec, functions: Mapping[str, KernelFunction]) -> OpSpec:
    """Return the op with values for each `T.const` that the section does not mention.

    The values are the dimension's in the op's tuning cases. Without cases, default sizes are
    tuned, and of the constants only the values that objects exist for.
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
    """Name of the dimension in the op; empty if it has none."""
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
    """Yield every combination of the sizes that a launch has objects for."""
    sizes = {size.name for size in op.sizes}
    fixed = {
        str(constant.expression): [int(value) for value in constant.choices]
        for constant in launch.constants
        if constant.choices and str(constant.expression) in sizes
    }
    for values in itertools.product(*fixed.values()):
        yield TuneProposal(tuple(zip(fixed, values, strict=True)))


_NVCC, _HIPCC, _CXX = "KBUILD_NVCC", "KBUILD_HIPCC", "KBUILD_CXX"


@LANGUAGES.add
class TileLang(Language):
    """Kernels with `@tilelang.jit`, and functions that return a `T.prim_func`."""

    name = "tilelang"
    decorator = "@tilelang.jit"
    worker = "tilelang"
    distributions = (DISTRIBUTION,)
    needs_grid = False
    has_host_code = compiles_for_other_hosts = True
    own_candidates = True
    on_cpu = True
    init_backends = ("cpu", "cuda")

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """See `Dialect.unsupported_reason`."""
        version, releases = version_of(pins), _releases()
        able = " or ".join(f"{DISTRIBUTION}=={known}" for known in releases)
        if version is None:
            return f'pins no exact release; write `toolchain = "{able}"`'
        if version not in releases:
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
        name = f"{DISTRIBUTION} {release['version']}"
        if backend == "cpu" and release["cpu"]:
            return ResolvedTargets((CPU_TARGET,))
        if backend == "cpu":
            return ResolvedTargets((), (f"the code of {name} for the CPU cannot be compiled",))
        if backend == "rocm":
            return rocm_targets(archs, release["rocm"], name)
        if backend != "cuda":
            return ResolvedTargets((), (f"TileLang has no code for {backend}",))
        needed = Version.parse(release["cuda"]).major
        if toolkit is not None and Version.parse(toolkit).major < needed:
            what = f"objects of TileLang are compiled by CUDA {needed}'s nvcc"
            return ResolvedTargets((), (f"{what}; left out for {toolkit}",))
        return cuda_targets(archs, release["archs"], DISTRIBUTION)

    def requirements(self, pins: Sequence[str]) -> tuple[str, ...]:
        """See `Language.requirements`."""
        return with_companions(DISTRIBUTION, pins, _release(pins)["pins"])

    def programs(self, pins: Sequence[str], flavour: str) -> Mapping[str, str]:
        """See `Language.programs`."""
        if flavour == "cpu":
            return {_CXX: "c++"}
        if flavour == "rocm":
            return {_HIPCC: "hip"}
        return {_NVCC: f"cuda-{_release(pins)['cuda']}", _CXX: "c++"}

    def program(
        self,
        pins: Sequence[str],
        flavour: str,  # noqa: ARG002
        target: ImageTarget,
    ) -> str | None:
        """See `Language.program`."""
        if target.kind == "hsaco":
            return "hip"
        return "c++" if target == CPU_TARGET else f"cuda-{_release(pins)['cuda']}"

    def linked(self, root: Path, pins: Sequence[str], flavour: str) -> LinkInputs:  # noqa: ARG002
        """See `Language.linked`."""
        if flavour == "rocm":
            return LinkInputs(hip=True)
        return LinkInputs(cudart=flavour.removeprefix("cuda") if flavour.startswith("cuda") else "")

    def expand(
        self,
        op: OpSpec,
        targets: Sequence[ImageTarget],
        candidates: Mapping[int, Sequence[Candidate]] | None = None,
    ) -> tuple[KernelUnit, ...]:
        """Return aligned units only: TileLang assumes that addresses are divisible by 16."""
        return tuple(unit for unit in expand(op, targets, candidates) if unit.aligned)

    def complete(
        self,
        op: OpSpec,
        functions: Mapping[str, KernelFunction],
        place: IssueCollector,  # noqa: ARG002
    ) -> OpSpec | None:
        """See `Language.complete`."""
        return with_sizes(op, functions)

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        """See `Language.request`."""
        for key in _ASSUMED:
            if getattr(unit, key):
                what = f"`{bound.function}`: `{key}` has no effect in TileLang"
                hint = "fix the dimension with `T.const`, or declare its type in the kernel"
                raise BuildError(what, hint=hint)
        return {
            "kernel": unit.kernel,
            "function": bound.function,
            "version": version_of(bound.toolchain) or "",
            "arch": unit.target.arch,
            "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
            "constants": constants_of(unit, bound),
        }

"""Kernels in Python DSLs, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import tomli

from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expand import expand
from kbuild.ops.image import UnitImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.budget import Budget, open_run
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller

MEMORY = 6144


@dataclass(frozen=True)
class DslKernel:
    """What a plan says of a kernel."""

    language: str
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]
    flavour: str = "cuda13"
    name: str = "k"


@contextmanager
def dsl_compiler(cache: Path, *, jobs: int = 2, keeps: bool = True) -> Iterator[AotCompiler]:
    """A compiler with a run of its own."""
    installer = WheelInstaller(LocalRunner(), open_store(cache))
    with open_run(Budget(jobs, MEMORY), cache, {}, keeps=keeps) as run:
        compiler = AotCompiler(run, DslEnvironments(installer))
        try:
            yield compiler
        finally:
            compiler.close()


@dataclass
class DslProject:
    """A compiler of DSL kernels, and a folder for their sources."""

    compiler: AotCompiler
    folder: Path
    language: str
    toolchain: tuple[str, ...]
    notes: list[str] = field(default_factory=list)

    def write(self, sources: Mapping[str, str]) -> None:
        for path, text in sources.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def kernel(self, sources: Iterable[str], flavour: str = "cuda13") -> DslKernel:
        return DslKernel(self.language, self.toolchain, tuple(sources), flavour)

    def functions(self, kernel: DslKernel, targets: Sequence[str]) -> Mapping[str, KernelFunction]:
        wanted = [ImageTarget.parse(target) for target in targets]
        return self.compiler.describe(kernel, self.folder, wanted)

    def op(self, text: str, kernel: DslKernel) -> OpSpec:
        """The only op of a section."""
        table = tomli.loads(f"[kernel.k]\n{text}")["kernel"]["k"]
        pins, sources = [*kernel.toolchain], [*kernel.sources]
        own = {"language": kernel.language, "toolchain": pins, "src": sources}
        reading = read_section("k", {**own, **table})
        assert reading.issues == (), reading.issues
        (op,) = reading.ops
        return op

    def wanted(
        self, text: str, sources: Mapping[str, str], targets: Sequence[str], flavour: str = "cuda13"
    ) -> tuple[DslKernel, list[tuple[KernelUnit, BoundLaunch]]]:
        self.write(sources)
        kernel = self.kernel(sources, flavour)
        functions, op = self.functions(kernel, targets), self.op(text, kernel)
        own = {
            index: functions[launch.functions[0]].candidates
            for index, launch in enumerate(op.launches)
            if launch.autotune
        }
        place = IssueCollector(())
        signatures = {name: one.parameters for name, one in functions.items()}
        launches = [
            replace(launch, candidates=own.get(index, launch.candidates))
            for index, launch in enumerate(op.launches)
        ]
        bounds = [bind(op, launch, signatures, place) for launch in launches]
        assert not place.issues, place.issues
        units = expand(op, [ImageTarget.parse(target) for target in targets], own)
        return kernel, [(unit, found) for unit in units if (found := bounds[unit.launch])]

    def compile(
        self, text: str, sources: Mapping[str, str], *targets: str, flavour: str = "cuda13"
    ) -> tuple[UnitImage, ...]:
        kernel, wanted = self.wanted(text, sources, targets, flavour)
        return self.compiler.compile(kernel, self.folder, wanted, note=self.notes.append)

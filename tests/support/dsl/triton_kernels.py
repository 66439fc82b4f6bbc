"""Kernels in Triton, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
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

# 3.9 has no wheels for Python 3.10.
VERSION = "3.9.0" if sys.version_info >= (3, 11) else "3.6.0"
MEMORY = 4096
HEAD = """\
[kernel.k]
language = "triton"
toolchain = "triton=={version}"
src = {sources}
"""


@dataclass(frozen=True)
class Kernel:
    """What a plan says of a kernel."""

    sources: tuple[str, ...]
    toolchain: tuple[str, ...] = (f"triton=={VERSION}",)
    flavour: str = "cuda13"
    name: str = "k"
    language: str = "triton"


@dataclass
class TritonProject:
    """A compiler of DSL kernels, and projects for it."""

    compiler: AotCompiler
    folder: Path
    version: str = VERSION
    notes: list[str] = field(default_factory=list)

    def write(self, sources: Mapping[str, str]) -> None:
        for path, text in sources.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def kernel(self, sources: Mapping[str, str], flavour: str = "cuda13") -> Kernel:
        self.write(sources)
        return Kernel(tuple(sources), (f"triton=={self.version}",), flavour)

    def describe(self, sources: Mapping[str, str], *targets: str) -> Mapping[str, KernelFunction]:
        wanted = [*map(ImageTarget.parse, targets)]
        return self.compiler.describe(self.kernel(sources), self.folder, wanted)

    def op(self, text: str, sources: Sequence[str]) -> OpSpec:
        head = HEAD.format(version=self.version, sources=list(sources))
        reading = read_section("k", tomli.loads(head + text)["kernel"]["k"])
        assert reading.issues == ()
        return reading.ops[0]

    def wanted(
        self, text: str, sources: Mapping[str, str], targets: Sequence[str], flavour: str = "cuda13"
    ) -> tuple[Kernel, list[tuple[KernelUnit, BoundLaunch]]]:
        kernel = self.kernel(sources, flavour)
        functions = self.compiler.describe(kernel, self.folder, [*map(ImageTarget.parse, targets)])
        op = self.op(text, list(sources))
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


@contextmanager
def shop(
    cache: Path, folder: Path, *, jobs: int = 2, version: str = VERSION, keeps: bool = True
) -> Iterator[TritonProject]:
    """A compiler with a run of its own."""
    installer = WheelInstaller(LocalRunner(), open_store(cache))
    with open_run(Budget(jobs, MEMORY), cache, {}, keeps=keeps) as run:
        compiler = AotCompiler(run, DslEnvironments(installer))
        try:
            yield TritonProject(compiler, folder, version)
        finally:
            compiler.close()

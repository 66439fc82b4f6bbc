"""Kernels in CuTe DSL, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expand import expand
from kbuild.ops.image import UnitImage
from kbuild.ops.model import OpSpec
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.project.config.issue import IssueCollector
from kbuild.system.budget import Budget, open_run
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.stores import dsl_store, shared_folder, warm_cache

VERSION = "4.8.1"
OLD = "KBUILD_TEST_OLD_CUTE"
"""Set where an older release may be fetched, too."""
MEMORY = 4096
SOURCE = "add.py"
HEAD = """\
[kernel.k]
language = "cute"
toolchain = "nvidia-cutlass-dsl=={version}"
src = ["add.py"]
"""


@dataclass(frozen=True)
class Kernel:
    """What a plan says of a kernel."""

    toolchain: tuple[str, ...]
    flavour: str = "cuda13"
    sources: tuple[str, ...] = (SOURCE,)
    name: str = "k"
    language: str = "cute"


@dataclass
class CuteProject:
    """A compiler of DSL kernels, and a project for it."""

    compiler: AotCompiler
    folder: Path
    version: str

    def kernel(self, flavour: str = "cuda13") -> Kernel:
        return Kernel((f"nvidia-cutlass-dsl=={self.version}",), flavour)

    def wanted(
        self, text: str, source: str, targets: Sequence[str]
    ) -> list[tuple[KernelUnit, BoundLaunch]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SOURCE).write_text(source)
        op = self.op(text)
        wanted = [*map(ImageTarget.parse, targets)]
        functions = self.compiler.describe(self.kernel(), self.folder, wanted)
        signatures = {name: one.parameters for name, one in functions.items()}
        place = IssueCollector(())
        bounds = [bind(op, launch, signatures, place) for launch in op.launches]
        assert not place.issues, place.issues
        units = expand(op, [ImageTarget.parse(target) for target in targets])
        return [(unit, found) for unit in units if (found := bounds[unit.launch])]

    def op(self, text: str) -> OpSpec:
        table: Mapping[str, Mapping[str, object]] = tomli.loads(
            HEAD.format(version=self.version) + text
        )["kernel"]
        reading = read_section("k", table["k"])
        assert reading.issues == ()
        return reading.ops[0]

    def compile(
        self, text: str, source: str, *targets: str, flavour: str = "cuda13"
    ) -> tuple[UnitImage, ...]:
        wanted = self.wanted(text, source, targets)
        return self.compiler.compile(self.kernel(flavour), self.folder, wanted)


@contextmanager
def shop(
    cache: Path, folder: Path, *, version: str = VERSION, keeps: bool = True
) -> Iterator[CuteProject]:
    """A compiler with a run of its own."""
    installer = WheelInstaller(LocalRunner(), open_store(cache))
    with open_run(Budget(2, MEMORY), cache, {}, keeps=keeps) as run:
        compiler = AotCompiler(run, DslEnvironments(installer))
        try:
            yield CuteProject(compiler, folder, version)
        finally:
            compiler.close()


def cache_with_dsl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for CuTe DSL, for all processes; skips where its wheels cannot be had."""
    store = dsl_store(f"cute-{VERSION}", "nvidia-cutlass-dsl", tmp_path_factory)
    return warm_cache(shared_folder(tmp_path_factory) / "cute-cache", store, tmp_path_factory)

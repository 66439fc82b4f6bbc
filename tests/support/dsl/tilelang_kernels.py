"""Kernels in TileLang, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import tomli

from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.environment import DslEnvironments
from kbuild.dsl.launcher.resolved_kernel import ResolvedLaunch, ResolvedOp
from kbuild.dsl.resolve import with_autotune_key
from kbuild.ops.binding import bind
from kbuild.ops.candidates import with_candidates
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES, KernelFunction
from kbuild.ops.model import OpSpec
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from kbuild.system.budget import Budget, open_run
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.stores import MACHINE_CACHE

PIN = "tilelang==0.1.15"
MEMORY = 6144
SOURCE = "k.py"
HEAD = f"""\
[kernel.k]
language = "tilelang"
toolchain = "PIN"
src = ["{SOURCE}"]

[[kernel.k.op]]
"""


@dataclass(frozen=True)
class Kernel:
    """What a plan says of a kernel."""

    flavour: str
    toolchain: tuple[str, ...] = (PIN,)
    sources: tuple[str, ...] = (SOURCE,)
    name: str = "k"
    language: str = "tilelang"


@dataclass
class TileLangProject:
    """A compiler of DSL kernels, and a project for it."""

    compiler: AotCompiler
    folder: Path
    pin: str = PIN

    def functions(self, flavour: str = "cpu", *targets: str) -> Mapping[str, KernelFunction]:
        wanted = [*map(ImageTarget.parse, targets)]
        return self.compiler.describe(Kernel(flavour, (self.pin,)), self.folder, wanted)

    def compiled(self, text: str, target: str) -> tuple[UnitImage, ...]:
        return self.launched(text, target).launches[0].compiled

    def launched(self, text: str, target: str) -> ResolvedOp:
        """An op with its objects, ready for a launcher."""
        flavour = "cpu" if target == "cpu" else "rocm" if "gfx" in target else "cuda13"
        kernel = Kernel(flavour, (self.pin,))
        op, joined = self._joined(text, kernel.flavour)
        launches = (replace(joined.launch, autotune=False),)
        language = LANGUAGES.get("tilelang")
        units = language.expand(replace(op, launches=launches), [ImageTarget.parse(target)])
        wanted = [(unit, joined.bound) for unit in units]
        made = self.compiler.compile(kernel, self.folder, wanted)
        return ResolvedOp(op, (replace(joined, launch=launches[0], compiled=made),))

    def joined(self, text: str) -> OpSpec:
        """The op with its key."""
        op, joined = self._joined(text, "cpu")
        return with_autotune_key(op, [joined])[0]

    def _joined(self, text: str, flavour: str) -> tuple[OpSpec, ResolvedLaunch]:
        table: Mapping[str, Mapping[str, object]] = tomli.loads(
            HEAD.replace("PIN", self.pin) + text
        )["kernel"]
        reading = read_section("k", table["k"])
        assert reading.issues == (), reading.issues
        (op,) = reading.ops
        functions, place = self.functions(flavour), IssueCollector(())
        completed = LANGUAGES.get("tilelang").complete(op, functions, place)
        assert completed is not None, place.issues
        op = completed
        function = next(functions[n] for n in op.launches[0].functions if n in functions)
        why = "; ".join(function.notes)
        launch = with_candidates(op, op.launches[0], function.candidates, place, why)
        assert launch is not None, place.issues
        signatures = {n: one.parameters for n, one in functions.items()}
        bound = bind(op, launch, signatures, place)
        assert bound is not None, place.issues
        return op, ResolvedLaunch(op, launch, bound, function)


@contextmanager
def shop(
    folder: Path, source: str, *, keeps: bool = True, pin: str = PIN
) -> Iterator[TileLangProject]:
    """A compiler with a run of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE).write_text(source)
    installer = WheelInstaller(LocalRunner(), open_store(MACHINE_CACHE))
    with open_run(Budget(2, MEMORY), MACHINE_CACHE, {}, keeps=keeps) as run:
        compiler = AotCompiler(run, DslEnvironments(installer))
        try:
            yield TileLangProject(compiler, folder, pin)
        finally:
            compiler.close()

"""Kernels in CuTe DSL, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

from kbuild.build.budget import Budget, opened
from kbuild.errors import ToolchainError
from kbuild.languages.compiled import Compiled
from kbuild.languages.environment import Environments
from kbuild.languages.expand import expand
from kbuild.languages.spec import Bound, OpSpec, bind, read_section
from kbuild.languages.spec.place import Place
from kbuild.languages.target import Target
from kbuild.languages.unit import Unit
from kbuild.languages.workshop import Workshop
from kbuild.run import LocalRunner
from kbuild.store import store_of
from kbuild.toolchains.wheels.index import Index
from kbuild.toolchains.wheels.installer import Installer
from kbuild.toolchains.wheels.settings import pip_settings

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
class Shop:
    """A workshop, and a project for it."""

    workshop: Workshop
    folder: Path
    version: str

    def kernel(self, flavour: str = "cuda13") -> Kernel:
        return Kernel((f"nvidia-cutlass-dsl=={self.version}",), flavour)

    def wanted(self, text: str, source: str, targets: Sequence[str]) -> list[tuple[Unit, Bound]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / SOURCE).write_text(source)
        op = self.op(text)
        wanted = [*map(Target.parse, targets)]
        functions = self.workshop.describe(self.kernel(), self.folder, wanted)
        signatures = {name: one.parameters for name, one in functions.items()}
        place = Place(())
        bounds = [bind(op, launch, signatures, place) for launch in op.launches]
        assert not place.issues, place.issues
        units = expand(op, [Target.parse(target) for target in targets])
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
    ) -> tuple[Compiled, ...]:
        wanted = self.wanted(text, source, targets)
        return self.workshop.compile(self.kernel(flavour), self.folder, wanted)


@contextmanager
def shop(
    cache: Path, folder: Path, *, version: str = VERSION, keeps: bool = True
) -> Iterator[Shop]:
    """A workshop with a run of its own."""
    installer = Installer(LocalRunner(), store_of(cache))
    with opened(Budget(2, MEMORY), cache, {}, keeps=keeps) as run:
        workshop = Workshop(run, Environments(installer))
        try:
            yield Shop(workshop, folder, version)
        finally:
            workshop.close()


def cache_with_dsl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for CuTe DSL; skips where its wheels cannot be had."""
    if (platform.machine(), platform.system()) != ("x86_64", "Linux"):
        pytest.skip("CuTe DSL's wheels are for x86_64 Linux")
    try:
        with Index(pip_settings(LocalRunner())) as index:
            found = index.files("nvidia-cutlass-dsl")
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    if not any(str(one.version) == VERSION for one in found):
        pytest.skip(f"the package index has no nvidia-cutlass-dsl {VERSION}")
    root = tmp_path_factory.getbasetemp()
    return (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "cute-cache"

"""Kernels in TileLang, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli

from kbuild.build.budget import Budget, opened
from kbuild.languages.base import LANGUAGES, Function
from kbuild.languages.compiled import Compiled
from kbuild.languages.environment import Environments
from kbuild.languages.launcher import LaunchedLaunch, LaunchedOp
from kbuild.languages.spec import bind, read_section
from kbuild.languages.spec.place import Place
from kbuild.languages.target import Target
from kbuild.languages.workshop import Workshop
from kbuild.run import LocalRunner
from kbuild.store import store_of
from kbuild.toolchains.wheels.installer import Installer

PIN = "tilelang==0.1.15"
MEMORY = 6144
SOURCE = "k.py"
HEAD = f"""\
[kernel.k]
language = "tilelang"
toolchain = "{PIN}"
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
class Shop:
    """A workshop, and a project for it."""

    workshop: Workshop
    folder: Path

    def functions(self, flavour: str = "cpu") -> Mapping[str, Function]:
        return self.workshop.describe(Kernel(flavour), self.folder)

    def compiled(self, text: str, target: str) -> tuple[Compiled, ...]:
        return self.launched(text, target).launches[0].compiled

    def launched(self, text: str, target: str) -> LaunchedOp:
        """An op with its objects, ready for a launcher."""
        kernel = Kernel("cpu" if target == "cpu" else "cuda13")
        table: Mapping[str, Mapping[str, object]] = tomli.loads(HEAD + text)["kernel"]
        reading = read_section("k", table["k"])
        assert reading.issues == ()
        (op,) = reading.ops
        signatures = {n: one.parameters for n, one in self.functions(kernel.flavour).items()}
        place = Place(())
        bound = bind(op, op.launches[0], signatures, place)
        assert bound is not None, place.issues
        units = LANGUAGES.get("tilelang").expand(op, [Target.parse(target)])
        made = self.workshop.compile(kernel, self.folder, [(unit, bound) for unit in units])
        return LaunchedOp(op, (LaunchedLaunch(op.launches[0], bound, made),))


@contextmanager
def shop(folder: Path, source: str, *, keeps: bool = True) -> Iterator[Shop]:
    """A workshop with a run of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE).write_text(source)
    cache = Path(os.environ.get("KBUILD_CACHE_DIR", Path.home() / ".cache/kbuild"))
    installer = Installer(LocalRunner(), store_of(cache))
    with opened(Budget(2, MEMORY), cache, {}, keeps=keeps) as run:
        workshop = Workshop(run, Environments(installer))
        try:
            yield Shop(workshop, folder)
        finally:
            workshop.close()

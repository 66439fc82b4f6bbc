"""Kernels in TileLang, compiled as a build compiles them, without a project around them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import tomli

from kbuild.build.budget import Budget, opened
from kbuild.languages.base import LANGUAGES, Function
from kbuild.languages.compiled import Compiled
from kbuild.languages.environment import Environments
from kbuild.languages.joined import Joined, with_key
from kbuild.languages.launcher import LaunchedLaunch, LaunchedOp
from kbuild.languages.spec import OpSpec, bind, read_section
from kbuild.languages.spec.keep import with_candidates
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
class Shop:
    """A workshop, and a project for it."""

    workshop: Workshop
    folder: Path
    pin: str = PIN

    def functions(self, flavour: str = "cpu", *targets: str) -> Mapping[str, Function]:
        wanted = [*map(Target.parse, targets)]
        return self.workshop.describe(Kernel(flavour, (self.pin,)), self.folder, wanted)

    def compiled(self, text: str, target: str) -> tuple[Compiled, ...]:
        return self.launched(text, target).launches[0].compiled

    def launched(self, text: str, target: str) -> LaunchedOp:
        """An op with its objects, ready for a launcher."""
        flavour = "cpu" if target == "cpu" else "rocm" if "gfx" in target else "cuda13"
        kernel = Kernel(flavour, (self.pin,))
        op, joined = self._joined(text, kernel.flavour)
        launches = (replace(joined.launch, autotune=False),)
        language = LANGUAGES.get("tilelang")
        units = language.expand(replace(op, launches=launches), [Target.parse(target)])
        wanted = [(unit, joined.bound) for unit in units]
        made = self.workshop.compile(kernel, self.folder, wanted)
        return LaunchedOp(op, (LaunchedLaunch(launches[0], joined.bound, made),))

    def joined(self, text: str) -> OpSpec:
        """The op with its key."""
        op, joined = self._joined(text, "cpu")
        return with_key(op, [joined])[0]

    def _joined(self, text: str, flavour: str) -> tuple[OpSpec, Joined]:
        table: Mapping[str, Mapping[str, object]] = tomli.loads(
            HEAD.replace("PIN", self.pin) + text
        )["kernel"]
        reading = read_section("k", table["k"])
        assert reading.issues == (), reading.issues
        (op,) = reading.ops
        functions, place = self.functions(flavour), Place(())
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
        return op, Joined(launch, bound, function)


@contextmanager
def shop(folder: Path, source: str, *, keeps: bool = True, pin: str = PIN) -> Iterator[Shop]:
    """A workshop with a run of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCE).write_text(source)
    cache = Path(os.environ.get("KBUILD_CACHE_DIR", Path.home() / ".cache/kbuild"))
    installer = Installer(LocalRunner(), store_of(cache))
    with opened(Budget(2, MEMORY), cache, {}, keeps=keeps) as run:
        workshop = Workshop(run, Environments(installer))
        try:
            yield Shop(workshop, folder, pin)
        finally:
            workshop.close()

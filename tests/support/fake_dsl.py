"""A compiler of DSL kernels whose worker is `worker/fake_worker.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.language import Language, ResolvedTargets
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.budget import Budget, Run, open_run
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.toolchains.wheels.installer import WheelInstaller

WORKER = Path(__file__).with_name("fake_worker.py")
BOUND = BoundLaunch("k", (), ())
FUNCTIONS = [
    {
        "name": "k",
        "parameters": [
            {"name": "x", "constant": False, "default": False},
            {"name": "B", "constant": True, "default": False},
            {"name": "C", "constant": True, "default": True},
            {"name": "D", "constant": True, "default": False},
        ],
        "candidates": [{"constants": {"B": 1}, "options": {"num_warps": 4}}],
        "key": ["n"],
        "computed": ["D"],
        "notes": [],
    }
]


class Fake(Language):
    name = "fake"
    worker = str(WORKER)

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        return "pins nothing" if not pins else None

    def targets(self, backend: str, archs: Any, toolkit: Any, pins: Any) -> ResolvedTargets:
        raise NotImplementedError

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:
        return {"function": bound.function, "options": dict(unit.options)}


class Nowhere(DslEnvironments):
    """Environments that are an empty folder."""

    def provide(self, language: str, pins: Sequence[str]) -> Any:
        del language, pins
        folder = self.installer.store.root / "environment"
        folder.mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(root=folder, facts={})


@dataclass(frozen=True)
class Kernel:
    sources: tuple[str, ...] = ("k.py",)
    toolchain: tuple[str, ...] = ("fake==1.0",)
    flavour: str = "cuda13"
    name: str = "k"
    language: str = "fake"


@dataclass
class FakeDslRun:
    compiler: AotCompiler
    root: Path
    run: Run

    def write(self, **facts: Any) -> None:
        text = {"functions": FUNCTIONS, "log": str(self.root), **facts}
        (self.root / "k.py").write_text(json.dumps(text))

    @property
    def log(self) -> list[list[str]]:
        """Time, word, number and process of each thing that a worker did."""
        file = self.root / "log"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def numbers(self) -> list[str]:
        """The units that were compiled, again and again those that failed."""
        return [line[2] for line in self.log if line[1] == "start"]

    def made(self) -> list[str]:
        """The units that something was compiled for, of those that name their kernels."""
        return [line[2] for line in self.log if line[1] == "make"]

    def most_at_once(self) -> int:
        """How many units were under way at the same time."""
        steps = sorted((float(line[0]), 1 if line[1] == "start" else -1) for line in self.log)
        count = most = 0
        for _, step in steps:
            count += step
            most = max(most, count)
        return most

    def compile(self, *units: KernelUnit, **options: Any) -> Any:
        wanted = [(unit, BOUND) for unit in units]
        return self.compiler.compile(Kernel(), self.root, wanted, **options)


def unit(number: int = 0, *, op: str = "k", target: str = "sm_90a", **options: Any) -> KernelUnit:
    return KernelUnit(
        language="fake",
        kernel="k",
        op=op,
        launch=0,
        functions=("k",),
        target=ImageTarget.parse(target),
        dtypes=(("x", "float16"),),
        options=(("number", number), *options.items()),
    )


@contextmanager
def shop(
    folder: Path, *, jobs: int = 2, memory: int = 4096, patience: float = 30.0, keeps: bool = True
) -> Iterator[FakeDslRun]:
    """Projects and cache are in `folder`."""
    cache = folder / "cache"
    installer = WheelInstaller(LocalRunner(), Store(cache / "store"))
    with open_run(Budget(jobs, memory), cache, {}, keeps=keeps) as run:
        fake = Fake()
        compiler = AotCompiler(run, Nowhere(installer), lambda _: fake, patience)
        found = FakeDslRun(compiler, folder, run)
        found.write()
        try:
            yield found
        finally:
            compiler.close()

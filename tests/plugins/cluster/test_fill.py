"""What the machine that builds takes over from workers, and what it refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kbuild.build import launcher
from kbuild.build.compile import CompileTree
from kbuild.build.unit.cache import ENTRY_PARTS
from kbuild.build.unit_log import read_log
from kbuild.plugins.cluster.assignments import ResultCallback, UnitResult, WorkUnit
from kbuild.plugins.cluster.fill import BuildRequest, ClusterFiller, RemainingTime
from kbuild.plugins.cluster.jobs import (
    CompileJob,
    FileArchive,
    parse_job,
    read_generated,
    unpack_archive,
)
from kbuild.plugins.cluster.objects import ObjectUnit, object_units
from kbuild.system.budget import Budget, Run, open_run
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner
from tests.support.plans import plan_of
from tests.support.unit_launches import UnitRun

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="compilers get no launcher there")
PLAN = plan_of("torch213-cxx11-cpu-x86_64-linux")
Outputs = dict[str, bytes]


def tree_of(bench: UnitRun, run: Run, compiler: Path, *sources: str) -> CompileTree:
    """A tree of `bench.project` that compiles with one compiler, wherever the tree is."""
    folder = bench.root / "tree"
    folder.mkdir(parents=True, exist_ok=True)
    prefix = [sys.executable, "-I", "-S", launcher.__file__, "CXX", str(compiler)]
    include = f"-I{bench.project}"
    commands = [[*prefix, *bench.command(source, include)[1:]] for source in sources]
    environ = {**os.environ, **run.environment(PLAN.variant, bench.project)}
    environ["FAKE_STARTS"] = str(bench.root / "starts")
    return CompileTree(PLAN, bench.project, folder, commands, environ)


def entry_of(unit: ObjectUnit) -> Outputs:
    parts = unit.cache.find()
    assert parts is not None
    return {**dict(zip(ENTRY_PARTS, parts, strict=True)), "cost": unit.cost}


@dataclass
class FakeExecutor:
    """A worker with a tree and cache of its own; `forge` changes what it answers."""

    tree: CompileTree
    forge: Callable[[Outputs], Outputs] = lambda outputs: outputs
    load = "1 worker"
    excluded: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    published: dict[str, bytes] = field(default_factory=dict)

    def publish(self, digest: str, data: bytes) -> None:
        assert len(digest) == 64
        self.published[digest] = data

    def execute(self, units: Sequence[WorkUnit], deliver: ResultCallback) -> tuple[WorkUnit, ...]:
        for unit in units:
            self.asked.append(unit.label)
            own = next(u for u in object_units(self.tree) if u.key == unit.key)
            LocalRunner().run(own.argv, cwd=self.tree.tree, env=self.tree.environ)
            fresh = next(u for u in object_units(self.tree) if u.key == unit.key)
            deliver(UnitResult(unit, self.forge(entry_of(fresh)), "w", 0.1))
        return ()

    def exclude(self, name: str, reason: str) -> None:
        self.excluded.append(f"{name}: {reason}")

    def close(self) -> None:
        pass


@dataclass
class Machines:
    """One that builds, and one that works for it."""

    run: Run
    head: UnitRun
    tree: CompileTree
    executor: FakeExecutor
    messages: list[str]

    def fill(self, share: float = 0.0, *, first: bool = False) -> None:
        request = BuildRequest(self.head.project, {PLAN.variant: PLAN}, "host")
        arguments = (self.executor, self.run, LocalRunner(), request, self.messages.append)
        filler = ClusterFiller(*arguments, share=share)  # type: ignore[arg-type]
        filler._has_sample = not first
        assert self.run.server is not None
        assert self.run.server.acquire(lambda: False)
        filler.fill_objects(self.tree, lambda *_: None)
        filler.close()

    @property
    def made(self) -> list[str]:
        return [unit.label for unit in object_units(self.tree) if unit.is_made]


@contextmanager
def machines(folder: Path, *sources: str) -> Iterator[Machines]:
    head, there = UnitRun(folder / "head"), UnitRun(folder / "worker")
    for bench in (head, there):
        bench.write("header.h", "header\n")
        for source in sources:
            bench.write(source, f'#include "header.h"\n{source}\n')
        components = [s.path for part in PLAN.components for s in part.sources]
        for path in components:
            bench.write(path, path)
    with (
        open_run(Budget(2, 4096), folder / "head-cache", {}) as run,
        open_run(Budget(2, 4096), folder / "worker-cache", {}) as other,
    ):
        tree = tree_of(head, run, head.compiler, *sources)
        executor = FakeExecutor(tree_of(there, other, head.compiler, *sources))
        yield Machines(run, head, tree, executor, [])


def test_the_cache_is_filled_and_nothing_is_compiled_here(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp", "b.cpp") as it:
        it.fill()
        assert it.made == ["a.cpp", "b.cpp"]
        assert it.head.starts == 0
        for unit in object_units(it.tree):
            done = LocalRunner().run(unit.argv, cwd=it.tree.tree, env=it.tree.environ)
            assert done.ok
        assert it.head.starts == 0
        assert not it.messages
        log = read_log(it.run.log)
        assert [(unit.unit, unit.worker) for unit in log.elsewhere] == [
            ("a.cpp", "w"),
            ("b.cpp", "w"),
        ]
        assert [unit.cache for unit in log.objects] == ["hit", "hit"]
        it.fill()
        assert it.executor.asked == ["a.cpp", "b.cpp"]


@pytest.mark.parametrize(
    ("part", "data", "reason"),
    [
        ("object", b"other bytes", "its digest is not that of its object"),
        ("record", b"", "its record cannot be read"),
        ("record", b"00\nnonsense", "its record cannot be read"),
        ("record", b"00", "its record does not name its source"),
    ],
)
def test_a_forged_entry_is_refused_and_its_worker_too(
    tmp_path: Path, part: str, data: bytes, reason: str
) -> None:
    with machines(tmp_path, "a.cpp", "b.cpp") as it:
        it.executor.forge = lambda outputs: {**outputs, part: data}
        it.fill()
        assert it.made == []
        assert it.executor.excluded[0] == f"w: a.cpp: {reason}"


def test_an_entry_made_from_another_header_is_not_kept(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp") as it:
        UnitRun(tmp_path / "worker").write("header.h", "another header\n")
        it.fill()
        assert it.made == []
        assert "made from other files" in it.executor.excluded[0]


def forged_object(outputs: Outputs) -> Outputs:
    """An object that its record agrees with."""
    from kbuild.system.file_state import hash_bytes

    data = outputs["object"] + b"!"
    rows = outputs["record"].partition(b"\n")[2]
    return {**outputs, "object": data, "record": hash_bytes(data).encode() + b"\n" + rows}


def test_a_sample_is_compiled_again_and_unmasks_a_worker(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp", "b.cpp", "c.cpp") as it:
        it.executor.forge = forged_object
        it.fill(first=True)
        assert it.executor.excluded == ["w: a.cpp: this machine makes other bytes of it"]
        assert it.made == ["a.cpp"]  # by this machine
        assert "what worker w made is removed from the cache" in "".join(it.messages)
        assert it.head.starts == 1


def test_a_share_of_one_compiles_everything_again(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp", "b.cpp") as it:
        it.fill(share=1.0)
        assert it.head.starts == 2
        assert it.made == ["a.cpp", "b.cpp"]
        assert not it.executor.excluded


def test_a_cluster_that_breaks_leaves_the_build_alone(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp") as it:

        def fail(*_: object) -> tuple[WorkUnit, ...]:
            raise OSError("connection lost")

        it.executor.execute = fail  # type: ignore[method-assign]
        it.fill()
        assert it.made == []
        assert it.messages == [f"{PLAN.variant}: the cluster is not used: connection lost"]


def test_what_compiling_took_there_is_known_here(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp", "b.cpp") as it:
        costs = iter((b"3000 12.50", b"-1 nonsense"))
        it.executor.forge = lambda outputs: {**outputs, "cost": next(costs)}
        it.fill()
        first, second = object_units(it.tree)
    assert first.expected_seconds == 12.5
    assert first.expected_resources.memory >= 3000
    assert second.expected_resources.memory == 0


def test_what_was_generated_from_images_travels_with_the_job(tmp_path: Path) -> None:
    with machines(tmp_path, "a.cpp") as it:
        generated = FileSet({"aot/k.cpp": "launcher\n", "aot/k.bin": b"images"})
        it.tree = replace(it.tree, generated=generated)
        it.fill()
        (job,) = [data for data in it.executor.published.values() if data.startswith(b"{")]
        parsed = parse_job(job)
        assert isinstance(parsed, CompileJob)
        archive = FileArchive(parsed.generated, it.executor.published[parsed.generated])
        unpack_archive(archive, tmp_path / "there")
    assert read_generated(tmp_path / "there").digest == generated.digest


def test_the_time_that_is_left_follows_from_what_is_done() -> None:
    units = [WorkUnit(str(number), "unit", seconds=10.0) for number in range(7)]
    now = iter((50.0, 170.0, 230.0))  # it is not asked too early
    remaining = RemainingTime(units, lambda: next(now))
    texts = [remaining.text_after(unit) for unit in units[:4]]
    assert texts == ["", "", "about 4 min left", "about 3 min left"]  # from a third on
    alone = RemainingTime(units[:2], lambda: 0.0)
    assert [alone.text_after(unit) for unit in units[:2]] == ["", ""]

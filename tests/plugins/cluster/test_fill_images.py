"""Images of DSL kernels that workers make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kbuild.dsl.compile_environment import SourceSnapshot
from kbuild.plugins.cluster.assignments import ResultCallback, UnitResult, WorkUnit
from kbuild.plugins.cluster.fill import BuildRequest, ClusterFiller
from kbuild.plugins.cluster.jobs import IMAGE_SUFFIXES, ImageJob, parse_job
from kbuild.system.processes import LocalRunner
from tests.support.fake_dsl import FakeDslRun, shop, unit

Outputs = dict[str, bytes]


@dataclass
class FakeExecutor:
    """A worker with a cache of its own; `forge` changes what it answers."""

    there: FakeDslRun
    forge: Callable[[Outputs], Outputs] = lambda outputs: outputs
    load = "1 worker"
    excluded: list[str] = field(default_factory=list)
    published: dict[str, bytes] = field(default_factory=dict)

    def publish(self, digest: str, data: bytes) -> None:
        self.published[digest] = data

    def execute(self, units: Sequence[WorkUnit], deliver: ResultCallback) -> tuple[WorkUnit, ...]:
        for work in units:
            job = parse_job(self.published[work.job])
            assert isinstance(job, ImageJob)
            wanted = [job.images[key] for key in work.key.split()]
            sources = SourceSnapshot(job.texts)
            entries = self.there.compiler.compile_images(job, sources, wanted)
            assert entries.keys() == set(work.key.split())
            outputs = {
                f"{key}{suffix}": part
                for key, entry in entries.items()
                for suffix, part in zip(IMAGE_SUFFIXES, entry, strict=True)
            }
            deliver(UnitResult(work, self.forge(outputs), "w", 0.1))
        return ()

    def exclude(self, name: str, reason: str) -> None:
        self.excluded.append(f"{name}: {reason}")


@contextmanager
def machines(folder: Path, share: float = 0.0) -> Iterator[tuple[FakeDslRun, FakeExecutor]]:
    """One that builds, and a worker."""
    for name in ("head", "worker"):
        (folder / name).mkdir()
    with shop(folder / "head") as head, shop(folder / "worker") as there:
        head.write(log=str(folder / "head"))
        executor = FakeExecutor(there)
        request = BuildRequest(head.root, {}, "host")
        assert head.run.server is not None
        assert head.run.server.acquire(lambda: False)
        arguments = (executor, head.run, LocalRunner(), request, lambda _: None)
        head.compiler._filler = ClusterFiller(*arguments, share=share)  # type: ignore[arg-type]
        yield head, executor


def test_workers_make_the_images(tmp_path: Path) -> None:
    units = [unit(number) for number in range(20)]
    with machines(tmp_path) as (head, executor):
        images = head.compile(*units)
        assert [image.unit for image in images] == units
        assert {image.code for image in images} == {b"code" * 8}
        assert head.compiler._pool.count == 0
        assert len(executor.published) == 1
        assert head.compile(*units) == images
        assert len(executor.published) == 1
    with shop(tmp_path / "head") as later:
        assert [image.cached for image in later.compile(*units)] == [True] * 20


def with_code(outputs: Outputs) -> Outputs:
    return {name: part + b"!" * name.endswith(".o") for name, part in outputs.items()}


def with_digest(outputs: Outputs) -> Outputs:
    """Other code, of which the record has the digest."""
    from hashlib import sha256

    forged = dict(outputs)
    for name in outputs:
        if name.endswith(".d"):
            code = outputs[name.replace(".d", ".o")] + b"!"
            facts = {**json.loads(outputs[name]), "code": sha256(code).hexdigest()}
            forged |= {name: json.dumps(facts).encode(), name.replace(".d", ".o"): code}
    return forged


def for_another_target(outputs: Outputs) -> Outputs:
    forged = {}
    for name, part in outputs.items():
        facts = json.loads(part) if name.endswith(".d") else {}
        if facts:
            facts["image"]["arch"] = "sm_80"
        forged[name] = json.dumps(facts).encode() if facts else part
    return forged


@pytest.mark.parametrize(
    ("forge", "share", "reason"),
    [
        (with_code, 0.0, "code is damaged"),
        (for_another_target, 0.0, "it is for another target"),
        (with_digest, 1.0, "this machine makes other bytes of an image"),
    ],
)
def test_a_forged_image_is_not_used(
    tmp_path: Path, forge: Callable[[Outputs], Outputs], share: float, reason: str
) -> None:
    with machines(tmp_path, share) as (head, executor):
        executor.forge = forge
        (image,) = head.compile(unit(1))
        assert image.code == b"code" * 8
        assert image.image.arch == "sm_90a"
        assert reason in executor.excluded[0]


def test_a_cluster_that_breaks_leaves_the_images_to_this_machine(tmp_path: Path) -> None:
    with machines(tmp_path) as (head, executor):

        def fail(*_: object) -> tuple[WorkUnit, ...]:
            raise OSError("connection lost")

        executor.execute = fail  # type: ignore[method-assign]
        assert len(head.compile(unit(1), unit(2))) == 2

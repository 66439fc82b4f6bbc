"""Which worker gets which unit, and what becomes of units whose worker is lost."""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from kbuild.plugins.cluster.assignments import UnitResources, UnitResult, WorkUnit
from kbuild.plugins.cluster.executor import ClusterExecutor, ClusterLimits
from kbuild.plugins.cluster.jobs import MachineFacts
from kbuild.plugins.cluster.worker import describe_worker

FACTS = MachineFacts("kbuild", "cpython 3.12.1", "glibc 2.36", "x86_64")
LIMITS = ClusterLimits(unit_seconds=100.0, worker_seconds=0.5)
Answer = Callable[[str, str], dict[str, Any]]
"""From a worker and a unit's key to the answer."""


def entry(worker: str, key: str) -> dict[str, Any]:
    """What a worker answers that has made a unit."""
    data = f"{key} of {worker}".encode()
    return {"outputs": {"object": zlib.compress(data)}, "seconds": 0.0}


@dataclass
class FakeFuture:
    key: str
    status: str = "pending"
    result: Any = None
    is_cancelled: bool = False
    _callbacks: list[Callable[[Any], None]] = field(default_factory=list)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)
        if self.status != "pending":
            callback(self)

    def finish(self, status: str, result: Any) -> None:
        self.status, self.result = status, result
        for callback in self._callbacks:
            callback(self)

    def cancel(self) -> None:
        self.is_cancelled = True

    def exception(self, timeout: float) -> Exception:
        del timeout
        return ModuleNotFoundError("No module named 'kbuild'")


class FakeClient:
    """A cluster whose workers answer from threads, or not at all."""

    def __init__(
        self,
        answers: dict[str, Answer | None],
        facts: dict[str, MachineFacts],
        said: dict[str, dict[str, Any]],
    ) -> None:
        self.answers, self.facts, self.said = answers, facts, said
        self.given: list[tuple[str, str]] = []
        """Worker and unit, in order."""
        self.metadata: dict[str, Any] = {}
        self.resources: dict[str, dict[str, float]] = {}
        """What workers declare, by name."""
        self.slots: dict[str, int] = {}
        """Processors of a worker, if it has more than one."""
        self.in_hand, self.most = Counter[str](), Counter[str]()
        """Units of a worker at a time: now, and at most."""
        self._numbers = count()

    def scheduler_info(self) -> dict[str, Any]:
        facts = {name: {"name": name, "nthreads": self.slots.get(name, 1)} for name in self.answers}
        return {
            "workers": {
                name: {**facts[name], "resources": self.resources.get(name, {})} for name in facts
            }
        }

    def submit(self, function: Any, *arguments: Any, workers: list[str], pure: bool) -> FakeFuture:
        del pure
        future, (worker,) = FakeFuture(str(next(self._numbers))), workers
        if function is describe_worker:
            known = self.facts.get(worker, FACTS)
            status = "finished" if known.machine else "error"
            future.finish(status, {"facts": known.to_json(), **self.said.get(worker, {})})
            return future
        key = arguments[2]
        self.given.append((worker, key))
        self.in_hand[worker] += 1
        self.most[worker] = max(self.most[worker], self.in_hand[worker])
        future.add_done_callback(lambda _: self.in_hand.subtract([worker]))
        answer = self.answers.get(worker)
        if answer is not None:
            found = answer(worker, key)
            threading.Timer(0.01, future.finish, ("finished", found)).start()
        return future

    def gather(self, futures: list[FakeFuture]) -> list[Any]:
        return [future.result for future in futures]

    def cancel(self, futures: list[FakeFuture]) -> None:
        for future in futures:
            future.cancel()

    def set_metadata(self, key: list[str], value: Any) -> None:
        self.metadata[key[2]] = value

    def close(self, timeout: float) -> None:
        del timeout


@dataclass
class ClusterRun:
    client: FakeClient
    executor: ClusterExecutor
    messages: list[str]

    def execute(self, *units: WorkUnit) -> tuple[dict[str, UnitResult], list[str]]:
        results: dict[str, UnitResult] = {}
        left = self.executor.execute(
            units, lambda result: results.update({result.unit.key: result})
        )
        return results, [unit.key for unit in left]


@contextmanager
def cluster(
    limits: ClusterLimits = LIMITS,
    facts: dict[str, MachineFacts] | None = None,
    resources: dict[str, dict[str, float]] | None = None,
    said: dict[str, dict[str, Any]] | None = None,
    **answers: Answer | None,
) -> Iterator[ClusterRun]:
    client, messages = FakeClient(answers, facts or {}, said or {}), list[str]()
    client.resources = resources or {}
    client.slots = {name: int(has.get("processors", 1)) for name, has in client.resources.items()}
    executor = ClusterExecutor(client, FACTS, messages.append, limits)  # type: ignore[arg-type]
    try:
        yield ClusterRun(client, executor, messages)
    finally:
        executor.close()


def units(number: int, job: str = "job") -> list[WorkUnit]:
    return [WorkUnit(f"{job}-{n}", f"unit {n}", job, float(n)) for n in range(number)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbuild.plugins.cluster.executor._POLL", 0.05)
    monkeypatch.setattr("kbuild.plugins.cluster.executor._PAUSE", 0.02)


def test_every_unit_is_delivered_once_and_the_longest_starts_first() -> None:
    with cluster(a=entry) as it:
        results, left = it.execute(*units(10))
        assert it.client.given[0] == ("a", "job-9")
    assert sorted(results) == sorted(unit.key for unit in units(10))
    assert results["job-3"].outputs["object"] == b"job-3 of a"
    assert not left


def test_a_worker_gets_units_of_the_job_that_it_knows() -> None:
    with cluster(a=entry) as it:
        it.execute(WorkUnit("first", "first", "known"))
        it.execute(*units(3, "new"), *units(3, "known"))
        jobs = [key.partition("-")[0] for _, key in it.client.given[1:]]
    assert jobs == ["known"] * 3 + ["new"] * 3


def test_the_units_of_a_worker_that_goes_are_given_to_another() -> None:
    with cluster(dead=None) as it:
        begin = threading.Timer(0.3, lambda: it.client.answers.update(alive=entry))
        end = threading.Timer(0.5, lambda: it.client.answers.pop("dead"))
        begin.start()
        end.start()
        results, left = it.execute(*units(4))
        begin.join()
        end.join()
    assert {result.worker for result in results.values()} == {"alive"}
    assert len(results) == 4
    assert not left
    assert any("worker dead has gone; its 2 units go to others" in text for text in it.messages)


def test_a_list_that_is_empty_once_loses_nobody() -> None:
    with cluster(a=entry) as it:
        full, looks = it.client.scheduler_info, count()
        it.client.scheduler_info = lambda: {"workers": {}} if next(looks) % 3 == 2 else full()
        results, left = it.execute(*units(60))
    assert (len(results), left, it.messages) == (60, [], [])


def test_a_worker_that_does_not_answer_in_time_is_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbuild.plugins.cluster.executor._GRACE_SECONDS", 0.0)
    with cluster(ClusterLimits(0.2, 5.0), hanging=None, alive=entry) as it:
        results, left = it.execute(*units(6))
    assert {result.worker for result in results.values()} == {"alive"}
    assert (len(results), left) == (6, [])
    assert "worker hanging is not used: it did not answer" in "".join(it.messages)


def test_another_kbuild_is_excluded_with_the_reason() -> None:
    other = {"old": MachineFacts("other", "cpython 3.12.1", "glibc 2.36", "x86_64")}
    with cluster(facts=other, old=entry, same=entry) as it:
        results, _ = it.execute(*units(4))
    assert {result.worker for result in results.values()} == {"same"}
    assert it.messages == ["worker old is not used: it has another kbuild"]


def test_a_worker_without_kbuild_is_excluded() -> None:
    with cluster(facts={"bare": MachineFacts("", "", "", "")}, bare=entry, same=entry) as it:
        results, _ = it.execute(*units(2))
    assert {result.worker for result in results.values()} == {"same"}
    assert "bare is not used: it cannot run kbuild: ModuleNotFoundError" in it.messages[0]


def test_a_worker_says_what_it_has_and_why_it_takes_nothing() -> None:
    said = {"able": {"slots": 3}, "unable": {"refusal": "no interpreter has Torch"}}
    with cluster(said=said, able=entry, unable=entry) as it:
        results, left = it.execute(*units(4))
        assert not left
        assert {result.worker for result in results.values()} == {"able"}
        worker = it.executor.workers["able"]
        assert (worker.slots, worker.description["slots"]) == (3, 3)
    assert it.messages == ["worker unable is not used: no interpreter has Torch"]


def test_without_workers_everything_is_left() -> None:
    with cluster() as it:
        began = time.monotonic()
        results, left = it.execute(*units(3))
        assert time.monotonic() - began < 5
    assert results == {}
    assert sorted(left) == ["job-0", "job-1", "job-2"]
    assert it.messages == ["the cluster has no worker: 3 units are left"]


def test_a_job_that_no_worker_can_do_is_left_and_others_are_made() -> None:
    def refuse(worker: str, key: str) -> dict[str, Any]:
        return {"refusal": "no nvcc"} if key.startswith("cuda") else entry(worker, key)

    with cluster(a=refuse, b=refuse) as it:
        results, left = it.execute(*units(3, "cuda"), *units(3, "cpu"))
    assert sorted(results) == ["cpu-0", "cpu-1", "cpu-2"]
    assert sorted(left) == ["cuda-0", "cuda-1", "cuda-2"]
    assert len(it.messages) == 2


def test_a_unit_that_fails_is_tried_elsewhere_and_then_reported_with_its_worker() -> None:
    def fail(worker: str, key: str) -> dict[str, Any]:
        return {"failure": "error: x"} if key == "job-1" else entry(worker, key)

    with cluster(a=fail, b=fail) as it:
        results, left = it.execute(*units(3))
        tried = {worker for worker, key in it.client.given if key == "job-1"}
    assert tried == {"a", "b"}
    assert results["job-1"].failure == "error: x"
    assert results["job-1"].worker in {"a", "b"}
    assert not results["job-1"].outputs
    assert not left


def test_a_worker_on_which_everything_fails_is_excluded() -> None:
    def full(worker: str, key: str) -> dict[str, Any]:
        del worker, key
        return {"failure": "no space left on device"}

    with cluster(full=full, good=entry) as it:
        results, left = it.execute(*units(12))
    assert {result.worker for result in results.values()} == {"good"}
    assert (len(results), left) == (12, [])
    assert "worker full is not used: 3 units in a row failed there" in it.messages


def test_what_was_put_down_is_removed_at_the_end() -> None:
    with cluster(a=entry) as it:
        it.executor.publish("digest", b"data")
        assert it.client.metadata == {"digest": b"data"}
    assert it.client.metadata == {"digest": None}


def test_a_client_that_is_closed_leaves_everything_to_this_machine() -> None:
    def refuse(_: object) -> None:
        raise OSError("Client is closed")

    with cluster(silent=None) as it:
        timer = threading.Timer(0.2, setattr, (it.client, "scheduler_info", dict))
        timer.start()
        it.client.cancel = refuse  # type: ignore[method-assign]
        _, left = it.execute(*units(2))
        timer.join()
        it.executor.close()
        assert not it.executor._thread.is_alive()
    assert sorted(left) == ["job-0", "job-1"]
    assert it.messages == ["the cluster cannot be used any more: the scheduler has gone"]


def test_a_scheduler_that_goes_leaves_everything_to_this_machine() -> None:
    with cluster(silent=None) as it:

        def gone() -> dict[str, Any]:
            raise OSError("connection lost")

        timer = threading.Timer(0.2, lambda: setattr(it.client, "scheduler_info", gone))
        timer.start()
        _, left = it.execute(*units(2))
        timer.join()
        _, later = it.execute(*units(1, "later"))
    assert sorted(left) == ["job-0", "job-1"]
    assert later == ["later-0"]
    assert it.messages == ["the cluster cannot be used any more: connection lost"]


def needing(resources: UnitResources, number: int, job: str = "job") -> list[WorkUnit]:
    return [replace(unit, resources=resources) for unit in units(number, job)]


def test_a_unit_goes_where_its_gpu_is_and_one_at_a_time() -> None:
    resources = {"gpu": {"processors": 8.0, "gpu:H100": 1.0}, "cpu": {"processors": 8.0}}
    with cluster(resources=resources, gpu=entry, cpu=entry, plain=entry) as it:
        results, left = it.execute(*needing(UnitResources(device="H100"), 6))
    assert {result.worker for result in results.values()} == {"gpu"}
    assert (len(results), left, it.client.most["gpu"]) == (6, [], 1)


def test_memory_of_a_worker_is_given_only_once() -> None:
    with cluster(resources={"a": {"processors": 8.0, "memory": 4000.0}}, a=entry) as it:
        results, left = it.execute(*needing(UnitResources(memory=1500), 7))
    assert (len(results), left, it.client.most["a"]) == (7, [], 2)


def test_a_unit_waits_until_its_processors_are_free() -> None:
    with cluster(resources={"a": {"processors": 4.0}}, a=entry) as it:
        results, left = it.execute(*needing(UnitResources(processors=2), 9))
    assert (len(results), left, it.client.most["a"]) == (9, [], 3)


def test_what_fits_on_no_worker_is_left_with_one_message() -> None:
    with cluster(resources={"a": {"processors": 2.0, "memory": 4000.0}}, a=entry) as it:
        large = needing(UnitResources(memory=8000), 2, "large")
        gpu = needing(UnitResources(device="H100"), 1, "gpu")
        wide = needing(UnitResources(processors=4), 1, "wide")
        results, left = it.execute(*large, *gpu, *wide, *units(3))
    assert sorted(results) == ["job-0", "job-1", "job-2"]
    assert sorted(left) == ["gpu-0", "large-0", "large-1", "wide-0"]
    assert len(it.messages) == 1
    assert it.messages[0].startswith("4 units fit on no worker and are left to this machine: ")
    assert it.messages[0].endswith("unit 1 takes 8000 MiB of memory")

"""Measurements shared among devices, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.dsl.tune.cases import make_case
from kbuild.dsl.tune.host import Device
from kbuild.dsl.tune.jobs import OpBenchmark, RaceJob
from kbuild.dsl.tune.results import REPETITIONS, Journal, results_of
from kbuild.dsl.tune.workers import DeviceWorkers, WorkerSettings
from kbuild.ops.manifest import ManifestKernel
from kbuild.ops.section import read_section
from kbuild.system.errors import ToolchainError
from tests.support.sections import op_of, text_of
from tests.support.simulated_gpus import SimulatedGpu, SimulatedHost

OP = op_of(text_of(key='["N"]', configs="[{ BLOCK = 1 }, { BLOCK = 2 }, { BLOCK = 3 }]"))
WORK = OpBenchmark(ManifestKernel(read_section("k", {}), ()), OP, 0, ())
TIMES = {0: 100.0, 1: 80.0, 2: 90.0}


def jobs(count: int) -> list[RaceJob]:
    dtypes = OP.dtype_sets()[0]
    cases = (make_case(OP, dtypes, (("N", n + 1),), {"sm_count()": 1}) for n in range(count))
    return [RaceJob(WORK, case, 0, (0, 1, 2)) for case in cases]


def times_of(_job: Mapping[str, Any]) -> dict[int, float]:
    return TIMES


def gpus(count: int = 1, **facts: Any) -> dict[str, SimulatedGpu]:
    return {f"cuda:{n}": SimulatedGpu(seed=n, **facts) for n in range(count)}


def workers(tmp_path: Path, host: SimulatedHost, **more: Any) -> DeviceWorkers:
    devices = [Device(name, "NVIDIA H200", "sm_90", 132) for name in host.gpus]
    setting = WorkerSettings(host, tmp_path / "v", "n", tmp_path, **more)
    return DeviceWorkers(setting, devices, Journal(tmp_path / "j.jsonl"), lambda *_: None)


def dealt(host: SimulatedHost) -> Counter[str]:
    return Counter(device for _, device, _, _ in host.dealt)


def test_each_call_is_measured_in_several_processes(tmp_path):
    host, some = SimulatedHost(gpus(), times_of), jobs(5)
    assert workers(tmp_path, host).measure(some) == ()
    assert len(host.workers) == REPETITIONS
    assert len({(worker, job) for worker, _, job, _ in host.dealt}) == 5 * REPETITIONS
    assert [number for *_, number in host.dealt] == sorted([*range(REPETITIONS)] * 5)


def test_what_is_known_is_not_measured_again(tmp_path):
    some = jobs(5)
    workers(tmp_path, SimulatedHost(gpus(), times_of)).measure(some[:3])
    host = SimulatedHost(gpus(), times_of)
    workers(tmp_path, host).measure(some)
    assert {job for _, _, job, _ in host.dealt} == {job.id for job in some[3:]}


def test_four_devices_are_three_and_a_half_times_as_fast_as_one(tmp_path):
    seconds = {}
    for count in (1, 4):
        host = SimulatedHost(gpus(count), times_of, setup_s=0.5)
        assert workers(tmp_path / str(count), host).measure(jobs(10)) == ()
        seconds[count] = host.now
        assert len(dealt(host)) == count
    assert seconds[1] / seconds[4] >= 3.5


def test_all_devices_measure_a_call_that_needs_many_processes(tmp_path):
    """An imprecise call takes up to nine processes, which one after the other would be the end."""
    seconds = {}
    for count in (1, 4):
        host = SimulatedHost(gpus(count, process_noise=0.05), times_of, setup_s=2.0)
        assert workers(tmp_path / str(count), host).measure(jobs(1)) == ()
        numbers = sorted(number for *_, number in host.dealt)
        assert numbers == [*range(len(numbers))]  # none twice
        assert len(numbers) > REPETITIONS
        seconds[count] = host.now
    assert len(dealt(host)) == 4
    assert seconds[1] / seconds[4] >= 2


def test_gpus_of_unequal_speed_need_no_more_processes(tmp_path):
    """What is measured is the difference of candidates, not that of two GPUs of one model."""
    devices = gpus(2)
    devices["cuda:1"].speed = 0.97
    host = SimulatedHost(devices, times_of)
    assert workers(tmp_path, host).measure(jobs(4)) == ()
    counts = Counter(job for _, _, job, _ in host.dealt)
    assert max(counts.values()) <= REPETITIONS + 2


def test_a_straggler_does_not_hold_the_others(tmp_path):
    devices = gpus(4)
    devices["cuda:2"].submit_us = 5000.0
    host = SimulatedHost(devices, times_of, setup_s=0.3)
    assert workers(tmp_path, host).measure(jobs(10)) == ()
    counts = dealt(host)
    assert counts["cuda:2"] <= 2
    assert min(counts[name] for name in ("cuda:0", "cuda:1", "cuda:3")) >= 8
    others = [host.busy_s[name] for name in ("cuda:0", "cuda:1", "cuda:3")]
    assert max(others) < 1.5 * min(others)


def test_a_crash_is_the_candidates_and_the_others_are_measured(tmp_path):
    host, some = SimulatedHost(gpus(), times_of), jobs(4)
    host.deaths.append((some[1].id, -11))
    mine = workers(tmp_path, host)
    assert mine.measure(some) == ()
    outcome = mine.journal.outcome(some[1].id)
    assert outcome.failed == {2: "it ended the process with signal 11"}
    assert set(outcome.times) == {0, 1}
    assert [number for _, _, job, number in host.dealt if job == some[1].id] == [0, 0, 1, 2]


@pytest.mark.parametrize(("code", "reason"), [(-14, "it hung"), (7, "exit code 7")])
def test_how_a_process_ended(tmp_path, code, reason):
    host, (one,) = SimulatedHost(gpus(), times_of), jobs(1)
    host.deaths.append((one.id, code))
    mine = workers(tmp_path, host)
    mine.measure([one])
    assert reason in mine.journal.outcome(one.id).failed[2]


@pytest.mark.parametrize("signal", [-2, -15])
def test_a_worker_that_a_user_ends_is_replaced_and_nobody_blamed(tmp_path, signal):
    host, some = SimulatedHost(gpus(2), times_of), jobs(4)
    host.deaths += [(some[0].id, signal), (some[2].id, signal)]
    mine = workers(tmp_path, host)
    assert mine.measure(some) == ()
    assert all(not mine.journal.outcome(job.id).failed for job in some)
    assert all(len(mine.journal.outcome(job.id).readings[1]) == REPETITIONS for job in some)


def test_workers_that_only_end(tmp_path):
    host, (one,) = SimulatedHost(gpus(), times_of), jobs(1)
    host.deaths += [(one.id, -15)] * 3
    with pytest.raises(ToolchainError, match="end without a result"):
        workers(tmp_path, host).measure([one])
    assert len(host.workers) == 3
    assert Journal(tmp_path / "j.jsonl").outcome(one.id) is None


def test_a_worker_that_dies_when_time_is_over_leaves_nobody_waiting(tmp_path):
    host, some = SimulatedHost(gpus(2), times_of, start_s=0.0, setup_s=1.0), jobs(2)
    mine = workers(tmp_path, host, ends=3.0, clock=lambda: host.now)
    host.deaths.append((some[0].id, -15))
    host.death_s = 5.0
    assert len(mine.measure(some)) == 2
    assert host.now == 5.0


class OneAnswer(SimulatedHost):
    """Each worker answers its first job with the same."""

    answer: Mapping[str, Any] = {}

    def send(self, command: Mapping[str, Any]) -> None:
        if "to" in command and not command["job"]["repetition"]:
            answers, self.answer = self.answer, {}
            about = {"worker": command["to"]}
            if answers:
                self._say(self.now, {**about, "doing": command["job"]["id"], "candidate": None})
                self._say(self.now, {**about, **answers})
                self._say(self.now, {"ended": command["to"], "code": 0})
                return
        super().send(command)


def test_a_broken_device_is_the_inputs(tmp_path):
    host, (one,) = OneAnswer(gpus(), times_of), jobs(1)
    host.answer = {"broken": one.id, "reason": "illegal memory access"}
    mine = workers(tmp_path, host)
    assert mine.measure([one]) == ()
    assert mine.journal.outcome(one.id).error == "illegal memory access"


def test_a_variant_that_cannot_be_loaded(tmp_path):
    host = OneAnswer(gpus(), times_of)
    host.answer = {"unloadable": "ImportError: no"}
    with pytest.raises(ToolchainError, match="`v` cannot be loaded: ImportError: no"):
        workers(tmp_path, host).measure(jobs(1))


def test_the_budget(tmp_path):
    host, some = SimulatedHost(gpus(), times_of, start_s=0.0, setup_s=10.0), jobs(5)
    mine = workers(tmp_path, host, ends=25.0, clock=lambda: host.now)
    assert mine.measure(some) == tuple(some)
    known = [job for job in some if mine.journal.outcome(job.id)]
    assert len(known) == 3
    # What there was time for is enough for a row, and is not measured again.
    assert all(
        result.winner == 1
        for result in results_of([(j, mine.journal.outcome(j.id)) for j in known])
    )
    later = SimulatedHost(gpus(), times_of)
    assert workers(tmp_path, later).measure(some) == ()
    assert len(later.dealt) == 5 * REPETITIONS - 3


class LossyHost(SimulatedHost):
    """Devices that are lost with the job that they get."""

    lost: frozenset[str] = frozenset()

    def send(self, command: Mapping[str, Any]) -> None:
        name = str(command.get("to", ""))
        if name and self.workers[name].device in self.lost:
            device = self.workers[name].device
            self.dealt.append((name, device, command["job"]["id"], command["job"]["repetition"]))
            self._say(self.now + 1.0, {"lost": name, "reason": "its worker has gone"})
        else:
            super().send(command)


def test_what_a_lost_device_had_is_measured_by_others(tmp_path):
    host, some, messages = LossyHost(gpus(3), times_of), jobs(5), []
    host.lost = frozenset({"cuda:1"})
    mine = workers(tmp_path, host, say=messages.append)
    assert mine.measure(some) == ()
    assert dealt(host)["cuda:1"] == 1
    assert [device.id for device in mine.devices] == ["cuda:0", "cuda:2"]
    (message,) = messages
    assert message.startswith("cuda:1 is out of reach: its worker has gone; other devices measure")
    assert all(not mine.journal.outcome(job.id).failed for job in some)


def test_no_device_is_left(tmp_path):
    host, some = LossyHost(gpus(2), times_of), jobs(3)
    host.lost = frozenset(host.gpus)
    mine = workers(tmp_path, host)
    with pytest.raises(ToolchainError, match="is out of reach"):
        mine.measure(some)
    assert mine.devices == []
    with pytest.raises(ToolchainError, match="no device is left"):
        mine.measure(some)


def outcome_of(tmp_path: Path, seed: int, times: Mapping[int, float], count: int = 1):
    devices = {
        f"cuda:{n}": SimulatedGpu(
            seed=100 * seed + n,
            speed=1 - 0.01 * n,
            noise=0.02,
            process_noise=0.004,
            cold_share=0.5,
            throttle_share=0.25,
        )
        for n in range(count)
    }
    host, (job,) = SimulatedHost(devices, lambda _: times), jobs(1)
    mine = workers(tmp_path / f"{seed}-{count}", host)
    mine.measure([job])
    (result,) = results_of([(job, mine.journal.outcome(job.id))])
    return result


def test_the_winner_and_its_time_are_stable(tmp_path):
    """Noise, clocks that rise and fall, other addresses in each process: ten runs agree."""
    results = [outcome_of(tmp_path, seed, {0: 100.0, 1: 80.0, 2: 83.5}) for seed in range(10)]
    results += [outcome_of(tmp_path, seed, {0: 100.0, 1: 80.0, 2: 83.5}, 4) for seed in range(5)]
    assert {result.winner for result in results} == {1}
    times = [result.microseconds for result in results]
    assert max(times) / min(times) < 1.03
    assert all(0 < result.spread < 0.05 for result in results)

"""Processes that measure, with a door behind which no process is."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, Lock

import pytest

from kbuild.errors import ToolchainError
from kbuild.ops.manifest import ManifestKernel
from kbuild.runtime.processes import ProcessResult
from kbuild.tune.cases import make_case
from kbuild.tune.devices import AvailableDevices, Device
from kbuild.tune.jobs import OpBenchmark, RaceJob
from kbuild.tune.results import Journal
from kbuild.tune.tuning import DeviceWorkers, WorkerSettings
from tests.support.sections import op_of, text_of

OP = op_of(text_of(key='["N"]'))
WORK = OpBenchmark(ManifestKernel("k", {}, ()), OP, 0, ())
DEVICES = tuple(Device(f"cuda:{n}", "NVIDIA H200", "sm_90", 132) for n in range(3))


def jobs(count: int) -> list[RaceJob]:
    dtypes = OP.dtype_sets()[0]
    cases = (make_case(OP, dtypes, (("N", n + 1),), {"sm_count()": 1}) for n in range(count))
    return [RaceJob(WORK, case, 0, (0, 1)) for case in cases]


@dataclass
class Farm:
    """Answers for the processes; `behave(device, job)` is what one says to a job."""

    behave: object = lambda device, job: [{"done": job["id"], "times": {"0": 1.0}}]
    shifts: list[tuple[str, int]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    gate: Barrier | None = None

    def run(self, argv, *, cwd, env, log, listen, stdin) -> ProcessResult:
        head, *given = [json.loads(line) for line in stdin.splitlines()]
        with self.lock:
            first = head["device"] not in [device for device, _ in self.shifts]
            self.shifts.append((head["device"], len(given)))
        if self.gate is not None and first:
            self.gate.wait(30)
        for job in given:
            said = self.behave(head["device"], job)
            if said is None:  # time is over
                break
            listen(json.dumps({"doing": job["id"], "candidate": None}))
            listen("a kernel prints")
            for line in said:
                if isinstance(line, int):
                    return ProcessResult(tuple(argv), line, "last words", 0.1)
                listen(json.dumps(line))
        return ProcessResult(tuple(argv), 0, "", 0.1)

    def stop(self) -> None:
        """No process is left."""


def crew(tmp_path: Path, farm: Farm, devices=DEVICES[:1], **more) -> DeviceWorkers:
    setting = WorkerSettings(
        farm, Path("python"), tmp_path / "v", "n", tmp_path, tmp_path / "logs", **more
    )
    return DeviceWorkers(setting, devices, Journal(tmp_path / "j.jsonl"), lambda *_: None)


def test_one_device_gets_all_at_once(tmp_path):
    farm, some = Farm(), jobs(5)
    assert crew(tmp_path, farm).measure(some) == ()
    assert farm.shifts == [("cuda:0", 5)]


def test_what_is_known_is_not_measured_again(tmp_path):
    farm, some = Farm(), jobs(5)
    crew(tmp_path, farm).measure(some[:3])
    crew(tmp_path, farm).measure(some)
    assert farm.shifts == [("cuda:0", 3), ("cuda:0", 2)]
    crew(tmp_path, farm).measure(some)
    assert len(farm.shifts) == 2


def test_several_devices_share_the_work(tmp_path):
    farm, some = Farm(gate=Barrier(3)), jobs(24)
    mine = crew(tmp_path, farm, DEVICES)
    assert mine.measure(some) == ()
    assert {device for device, _ in farm.shifts} == {"cuda:0", "cuda:1", "cuda:2"}
    sizes = [count for _, count in farm.shifts]
    assert sum(sizes) == 24
    # Each device begins in a thread of its own, so what is handed out first need not start first.
    assert sorted(sizes[:3]) == [3, 4, 4]
    assert min(sizes) == 1


def test_a_crash_is_the_candidates_and_the_others_are_measured(tmp_path):
    def behave(device, job):
        if 1 in job["candidates"] and job["arguments"][1]["shape"] == [2]:
            return [{"doing": job["id"], "candidate": 1}, -11]
        return [{"done": job["id"], "times": {str(one): 1.0 for one in job["candidates"]}}]

    farm, some = Farm(behave), jobs(4)
    mine = crew(tmp_path, farm)
    assert mine.measure(some) == ()
    assert farm.shifts == [("cuda:0", 4), ("cuda:0", 3)]
    outcome = mine.journal.outcome(some[1].id)
    assert outcome.failed == {1: "it ended the process with signal 11"}
    assert outcome.times == {0: 1.0}


def test_a_broken_device_is_the_candidates_as_well(tmp_path):
    def behave(device, job):
        if 1 in job["candidates"]:
            doing = {"doing": job["id"], "candidate": 1}
            return [doing, {"broken": job["id"], "reason": "illegal memory access"}, 0]
        return [{"done": job["id"], "times": {"0": 1.0}}]

    (one,) = jobs(1)
    mine = crew(tmp_path, Farm(behave))
    mine.measure([one])
    assert mine.journal.outcome(one.id).failed == {1: "illegal memory access"}


def test_inputs_that_end_the_process(tmp_path):
    (one,) = jobs(1)
    mine = crew(tmp_path, Farm(lambda *_: [3]))
    assert mine.measure([one]) == ()
    assert mine.journal.outcome(one.id).error == "it ended the process with exit code 3"


@pytest.mark.parametrize("signal", [-2, -15])
def test_a_user_who_ends_the_process_blames_nobody(tmp_path, signal):
    (one,) = jobs(1)
    farm = Farm(lambda *_: [signal])
    with pytest.raises(ToolchainError, match="end without a result"):
        crew(tmp_path, farm).measure([one])
    assert len(farm.shifts) == 3
    assert Journal(tmp_path / "j.jsonl").outcome(one.id) is None


def test_a_variant_that_cannot_be_loaded(tmp_path):
    farm = Farm(lambda *_: [{"unloadable": "ImportError: no"}])
    with pytest.raises(ToolchainError, match="`v` cannot be loaded: ImportError: no"):
        crew(tmp_path, farm).measure(jobs(1))


def test_the_budget(tmp_path):
    now = [0.0]

    def behave(device, job):
        now[0] += 10.0
        return [{"done": job["id"]}] if now[0] < 25 else None

    some = jobs(5)
    left = crew(tmp_path, Farm(behave), ends=25.0, clock=lambda: now[0]).measure(some)
    assert left == tuple(some[2:])


class TestDevices:
    FOUND = AvailableDevices("2.13", (*DEVICES, Device("cpu", "CPU", "cpu", 1)))

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ((), ["cuda:0"]),
            (("all",), ["cuda:0", "cuda:1", "cuda:2"]),
            (("1", "cuda:2", "1"), ["cuda:1", "cuda:2"]),
            (("cuda",), ["cuda:0"]),
            (("cpu",), ["cpu"]),
        ],
    )
    def test_names(self, wanted, expected):
        assert [device.id for device in self.FOUND.chosen(wanted)] == expected

    def test_what_a_build_is_told(self):
        assert (DEVICES[0].capability, DEVICES[0].backend) == ("9.0", "cuda")
        other = Device("cuda:0", "AMD Instinct MI300X", "gfx942", 304)
        assert (other.capability, other.backend) == ("gfx942", "rocm")
        assert Device("cuda:0", "NVIDIA B200", "sm_100", 148).capability == "10.0"

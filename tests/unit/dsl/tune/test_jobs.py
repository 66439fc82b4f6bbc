"""Which devices are chosen, and what is measured of ops of captured functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbuild.dsl.tune.host import AvailableDevices, Device
from kbuild.dsl.tune.jobs import RaceJob, benchmarks_of, jobs_of
from kbuild.ops.manifest import ManifestKernel, OpManifest
from kbuild.system.errors import ToolchainError
from tests.support.sections import read

SECTION = """\
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.k.op]]
schema = "f(Tensor x, Tensor? b) -> Tensor"
shapes = { x = ["M", "N"], b = ["N"], out = "x" }
dtypes = ["float32"]
key = ["M * N"]
tune = { sizes = { M = [64, 128], N = [64, 128], b = [true, false] } }
[[kernel.k.op.launch]]
function = "ruled"
args = { b = "b" }
grid = [1]
configs = [{ BLOCK = 64, when = "N <= 64" }, { BLOCK = 128, when = "N > 64" }]
when = "has(b)"
[[kernel.k.op.launch]]
function = "tuned"
grid = [1]
configs = [{ SPAN = 64 }, { SPAN = 128 }]
[[kernel.k.op]]
schema = "g(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
grid = [1]
configs = [{ SPAN = 64 }, { SPAN = 128 }]
"""
DEVICE = Device("cuda:0", "NVIDIA H100", "sm_90", 132)


def manifest(origin: str) -> OpManifest:
    launches = [launch.candidates for op in read(SECTION).ops for launch in op.launches]
    kernel = ManifestKernel(replace(read(SECTION), origin=origin), tuple(launches))
    return OpManifest.from_json(OpManifest("n", (kernel,)).to_json())


def jobs(origin: str, launch: int) -> list[tuple[object, tuple[int, ...]]]:
    entries = [
        entry
        for work in benchmarks_of(manifest(origin), DEVICE, ("f",), {})
        for entry in jobs_of(work, launch, DEVICE, {})
    ]
    assert all(isinstance(entry, RaceJob) for entry in entries)
    return [(e.case.key[0], e.candidates) for e in entries if isinstance(e, RaceJob)]


def test_what_conditions_decide_is_not_measured() -> None:
    assert jobs("function", 0) == []
    assert {candidates for _, candidates in jobs("", 0)} == {(0,), (1,)}


def test_one_call_is_measured_for_each_key_and_each_kind() -> None:
    assert sorted(key for key, _ in jobs("function", 1)) == [4096, 4096, 8192, 8192, 16384, 16384]
    assert len(jobs("", 1)) == 8
    assert {candidates for _, candidates in jobs("function", 1)} == {(0, 1)}


def test_ops_without_candidates_of_the_author_are_left_out() -> None:
    works = benchmarks_of(manifest("function"), DEVICE, (), {})
    assert [(work.op.name, work.first) for work in works] == [("f", 0)]
    assert [w.op.name for w in benchmarks_of(manifest(""), DEVICE, (), {})] == ["f", "g"]


def test_ops_are_chosen_by_the_functions_name() -> None:
    works = benchmarks_of(manifest("function"), DEVICE, ("function",), {})
    assert [work.op.name for work in works] == ["f"]
    assert benchmarks_of(manifest("function"), DEVICE, ("other",), {}) == ()


def test_given_calls_are_all_measured() -> None:
    shapes = {"g": ((("N", 64),), (("N", 128),)), "f": ((("M", 64), ("N", 128)),) * 2}
    works = benchmarks_of(manifest("function"), DEVICE, (), shapes)
    assert [(work.op.name, len(work.cases)) for work in works] == [("f", 2), ("g", 2)]


DEVICES = tuple(Device(f"cuda:{n}", "NVIDIA H200", "sm_90", 132) for n in range(3))


class TestDevices:
    FOUND = AvailableDevices((*DEVICES, Device("cpu", "CPU", "cpu", 1)))

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ((), ["cuda:0"]),
            (("all",), ["cuda:0", "cuda:1", "cuda:2"]),
            (("1", "cuda:2", "1"), ["cuda:1", "cuda:2"]),
            (("cuda",), ["cuda:0"]),
            (("cpu",), ["cpu"]),
            (("h200",), ["cuda:0", "cuda:1", "cuda:2"]),
        ],
    )
    def test_names(self, wanted, expected):
        assert [device.id for device in self.FOUND.chosen(wanted)] == expected

    @pytest.mark.parametrize("wanted", [(), ("cuda:0",), ("all",)])
    def test_without_a_gpu(self, wanted):
        """Also `kbuild bench` and `kbuild dev` say so."""
        alone = AvailableDevices((Device("cpu", "CPU", "cpu", 1, torch="2.13.0"),))
        with pytest.raises(ToolchainError) as raised:
            alone.chosen(wanted)
        assert raised.value.message == "Torch 2.13.0 finds no GPU here"

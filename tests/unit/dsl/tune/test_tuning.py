"""Several models at the same time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kbuild.dsl.tune.host import Device
from kbuild.dsl.tune.tuning import TuneResult, TuningProgress, require_complete, tune_models
from kbuild.system.errors import IncompleteError, ToolchainError


def device(name: str) -> Device:
    return Device("cuda:0", name, "sm_90", 132)


def run(name: str, perform):
    return SimpleNamespace(devices=[device(name)], perform=perform)


def test_models_are_tuned_at_the_same_time_and_keep_their_order():
    both = threading.Barrier(2, timeout=10)

    def perform(name: str):
        both.wait()
        return TuneResult(device(name), ())

    runs = [run(name, lambda name=name: perform(name)) for name in ("B", "A")]
    assert [result.device.name for result in tune_models(runs)] == ["B", "A"]


def test_an_error_is_one_models_alone():
    def fail():
        raise ToolchainError("no device is left")

    results = tune_models([run("A", fail), run("B", lambda: TuneResult(device("B"), ()))])
    assert results[0].to_json()["error"] == "no device is left"
    assert "error" not in results[1].to_json()
    with pytest.raises(ToolchainError, match="no device is left"):
        require_complete(results)
    with pytest.raises(IncompleteError):
        require_complete([TuneResult(device("A"), (), unmeasured=2)])


def test_one_view_of_all_models():
    lines, now = [], [0.0]
    progress = SimpleNamespace(update=lambda *values: lines.append(values))
    view = TuningProgress(progress, lambda: now[0])
    first, second = view.of_model("H100"), view.of_model("A100")
    now[0] = 1.0
    first.update(10, 30, "gemm")
    assert lines[-1] == (10, 30, "gemm")
    now[0] = 11.0
    first.update(20, 30, "gemm")
    assert lines[-1] == (20, 30, "gemm, 10 s left")
    second.update(0, 6, "gemm")
    assert lines[-1] == (20, 36, "H100 20/30, 10 s left; A100 0/6")
    now[0] = 12.0
    first.update(31, 30, "gemm")  # a call whose times differ takes more processes
    assert lines[-1] == (31, 37, "H100 31/31; A100 0/6")

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
    view = TuningProgress(
        SimpleNamespace(update=lambda *values: lines.append(values)), lambda: now[0]
    )
    view.expect(30, 24)
    view.expect(3, 0)
    view.show("gemm", is_done=False)
    now[0] = 9.0
    for _ in range(3):
        view.show("gemm", is_done=True)
    assert lines[0] == (24, 33, "gemm", None)
    assert lines[-1] == (27, 33, "gemm", 18.0)

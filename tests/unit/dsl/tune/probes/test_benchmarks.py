"""What the process that measures benchmarks does without measuring."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from kbuild.dsl.tune.probes import benchmarks  # noqa: E402


def test_scripts_need_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kernels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    before = set(sys.modules)
    try:
        benchmarks._offer_client()
        benchmark = importlib.import_module("kernels.benchmark").Benchmark()
        assert (benchmark.seed, benchmark.device, benchmark.out) == (None, "cpu", None)
        benchmark.setup()
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_the_classes_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "benchmarks" / "benchmark_classes.py"
    script.parent.mkdir()
    script.write_text(
        "from kernels.benchmark import Benchmark\n"
        "class B(Benchmark):\n    def benchmark_x(self): ...\n    benchmark_none = 3\n"
        "class A(B):\n    benchmark_y = B.benchmark_x\n"
        "class Other: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    classes = dict(benchmarks._benchmark_classes(str(script)))
    found = {name: benchmarks._workloads(owner) for name, owner in classes.items()}
    assert found == {"A": ["x", "y"], "B": ["x"]}


def test_only_the_kernel_s_own_ops_count() -> None:
    library = torch.library.Library("_traffic_of_a_test", "DEF")
    library.define("add(Tensor x, Tensor[] others) -> Tensor")
    library.impl("add", lambda x, others: x + sum(others), "CPU")
    x = torch.ones(8)
    moved, tensors = benchmarks._traffic(
        lambda: torch.ops._traffic_of_a_test.add(x * 2, [torch.ones(8), torch.ones(8)]) * 3
    )
    assert moved == 4 * 32
    assert len(tensors) == 4

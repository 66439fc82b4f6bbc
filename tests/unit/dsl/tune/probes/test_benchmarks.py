"""What the process that measures benchmarks does without measuring."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from kbuild.dsl.tune.probes import benchmarks  # noqa: E402


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

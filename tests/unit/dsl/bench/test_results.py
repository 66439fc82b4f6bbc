"""What follows from the times of a benchmark."""

from __future__ import annotations

import pytest

from kbuild.dsl.bench.results import (
    AGAINST,
    COPY,
    KERNEL,
    REFERENCE,
    BenchmarkResults,
    DeviceLimits,
    SideTimes,
    WorkloadResult,
    table_of,
)

LIMITS = DeviceLimits({COPY: 1e12, "bfloat16": 5e14})


def times(*processes: float, jitter: float = 0.0) -> SideTimes:
    """Three calls in each process, in milliseconds."""
    return SideTimes(tuple((one - jitter, one, one + jitter) for one in processes))


def workload(name: str = "A.large", *, against: SideTimes | None = None, **facts) -> WorkloadResult:
    sides = {KERNEL: times(1.0, 1.2, 1.1), REFERENCE: times(2.0, 2.4, 2.2)}
    if against is not None:
        sides[AGAINST] = against
    return WorkloadResult(name, sides, bytes_moved=500_000_000, dtype="bfloat16", **facts)


def results(*workloads: WorkloadResult) -> BenchmarkResults:
    return BenchmarkResults(workloads, LIMITS, {"gpu": "G", "cpu": "C"})


def test_a_ratio_is_that_of_each_process() -> None:
    # The second process is slower as a whole, which says nothing about either side.
    sides = {KERNEL: times(1.0, 4.0, 1.0), AGAINST: times(2.0, 8.0, 2.0)}
    measured = WorkloadResult("A.x", sides)
    assert measured.ratio(AGAINST) == 2.0
    assert measured.slowdown == -0.5
    assert measured.slowdown_error == 0.0
    assert measured.ratio(REFERENCE) is None


def test_a_regression_is_sure_when_it_exceeds_its_error() -> None:
    quiet = workload(against=times(1.0, 1.2, 1.1))
    assert list(results(quiet).slower(0.05)) == []
    slow = workload(against=times(0.9, 1.08, 0.99))
    assert [sure for _, sure in results(slow).slower(0.05)] == [True]
    assert list(results(slow).slower(0.15)) == []
    jittery = workload(against=times(0.9, 1.08, 0.99, jitter=0.2))
    assert [sure for _, sure in results(jittery).slower(0.05)] == [False]
    noisy = workload(against=times(0.5, 1.4, 0.99))  # 2.0, 0.86 and 1.11 times as long
    assert [sure for _, sure in results(noisy).slower(0.05)] == [False]


@pytest.mark.parametrize(
    ("flops", "limit", "share"),
    [(None, COPY, 0.5 / 1.1), (1e11, COPY, 0.5 / 1.1), (5e11, "bfloat16", 1 / 1.1)],
)
def test_roofline(flops, limit, share) -> None:
    assert workload(flops=flops).share(LIMITS) == (pytest.approx(share), limit)


def test_the_table_has_no_empty_columns() -> None:
    headers, rows = table_of(results(workload(), workload("A.small")))
    assert headers == ("workload", "median", "spread", "reference", "speed-up", "roofline")
    assert [row[0] for row in rows] == ["large", "small"]
    assert rows[0][1:] == ("1.1 ms", "9.1%", "2.2 ms", "2.00x", "45% of copy")
    headers, rows = table_of(results(workload(against=times(1.0, 1.2, 1.1)), workload("B.x")))
    assert [row[0] for row in rows] == ["A.large", "B.x"]
    change = headers.index("change")
    assert [row[change] for row in rows] == ["+0.0% ±0.0%", "-"]


def test_problems_are_listed() -> None:
    broken = WorkloadResult("A.broken", {}, error="ValueError: no")
    wrong = workload(wrong={AGAINST: "it differs"})
    measured = results(broken, wrong)
    assert list(measured.problems()) == ["A.broken: ValueError: no", "A.large, against: it differs"]
    assert [one.name for one in measured.measured] == ["A.large"]
    assert results(wrong).to_json("abc", "0")["results"][0]["verified"] is True

"""From times to rows."""

from __future__ import annotations

import pytest

from kbuild.dsl.tune.cases import make_case
from kbuild.dsl.tune.jobs import OpBenchmark, RaceJob
from kbuild.dsl.tune.results import RaceOutcome, results_of
from kbuild.ops.manifest import ManifestKernel
from kbuild.ops.section import read_section
from tests.support.sections import op_of, text_of

OP = op_of(text_of(key='["N"]', configs="[{ BLOCK = 1 }, { BLOCK = 2 }, { BLOCK = 3 }]"))
WORK = OpBenchmark(ManifestKernel(read_section("k", {}), ()), OP, 0, ())


def job(rows: int = 1, n: int = 64) -> RaceJob:
    case = make_case(OP, OP.dtype_sets()[0], (("...", (rows,)), ("N", n)), {"sm_count()": 1})
    return RaceJob(WORK, case, 0, (0, 1, 2))


def result(*outcomes: RaceOutcome):
    (found,) = results_of([(job(at + 1), one) for at, one in enumerate(outcomes)])
    return found


def test_the_fastest():
    found = result(RaceOutcome({0: 20.0, 1: 10.0, 2: 15.0}, default=0))
    row = found.row()
    assert (row.constants, row.microseconds, row.default_microseconds) == (
        (("BLOCK", 2),),
        10.0,
        20.0,
    )
    assert (row.key, row.kernel, row.op) == ((64,), "k", "k")
    assert found.gain == pytest.approx(1.0)


def test_the_default_stays_where_nothing_is_worth_its_images():
    assert result(RaceOutcome({0: 10.29, 1: 10.0}, default=0)).winner == 0
    assert result(RaceOutcome({0: 10.4, 1: 10.0}, default=0)).winner == 1
    assert result(RaceOutcome({0: 10.0, 1: 10.29}, default=1)).winner == 1


def test_of_those_as_fast_as_the_fastest_the_first_wins():
    found = result(RaceOutcome({0: 20.0, 1: 10.1, 2: 10.0}, default=0))
    assert (found.winner, found.ties) == (1, (2,))
    assert result(RaceOutcome({0: 20.0, 1: 10.2, 2: 10.0}, default=0)).winner == 2


def test_processes_that_disagree_about_the_faster_one():
    times = {0: 20.0, 1: 10.25, 2: 10.0}
    readings = {0: (20.0,) * 3, 1: (10.25, 10.0, 10.3), 2: (10.0, 10.1, 10.0)}
    found = result(RaceOutcome(times, default=0, readings=readings))
    assert (found.winner, found.ties) == (1, (2,))
    assert found.spread == pytest.approx(0.3 / 10.25)
    assert found.row().spread == pytest.approx(0.0293)


def test_several_calls_with_one_key():
    found = result(
        RaceOutcome({0: 10.0, 1: 5.0, 2: 11.0}, default=0),
        RaceOutcome({0: 10.0, 1: 40.0}, default=0),
    )
    # 1 is twice as fast in one, four times slower in the other; 2 does not run everywhere.
    assert found.winner == 0
    assert found.microseconds == pytest.approx(10.0)


def test_keys_are_told_apart():
    found = results_of([(job(n=64), RaceOutcome({0: 1.0}, default=0)), (job(n=32), RaceOutcome())])
    assert [one.winner for one in found] == [0, None]
    assert found[1].row() is None


def test_a_call_without_times_does_not_decide():
    found = result(RaceOutcome({0: 10.0, 1: 5.0}, default=0), RaceOutcome(error="out of memory"))
    assert found.winner == 1
    assert found.to_json()["errors"] == ["out of memory"]


def test_a_default_that_is_wrong():
    found = result(RaceOutcome({1: 5.0, 2: 6.0}, wrong={0: "differs"}, default=1))
    assert (found.winner, found.default) == (1, 1)
    assert list(found.excluded()) == [("wrong", "{ BLOCK = 1 }", "differs")]

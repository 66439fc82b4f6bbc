"""From times to rows."""

from __future__ import annotations

import pytest
from sections import op_of, text_of

from kbuild.languages.description import DescribedKernel
from kbuild.tune.cases import make_case
from kbuild.tune.jobs import Job, Work
from kbuild.tune.journal import Outcome
from kbuild.tune.winners import results_of

OP = op_of(text_of(key='["N"]', configs="[{ BLOCK = 1 }, { BLOCK = 2 }, { BLOCK = 3 }]"))
WORK = Work(DescribedKernel("k", {}, ()), OP, 0, ())


def job(rows: int = 1, n: int = 64) -> Job:
    case = make_case(OP, OP.dtype_sets()[0], (("...", (rows,)), ("N", n)), {"sm_count()": 1})
    return Job(WORK, case, 0, (0, 1, 2))


def result(*outcomes: Outcome):
    (found,) = results_of([(job(at + 1), one) for at, one in enumerate(outcomes)])
    return found


def test_the_fastest():
    found = result(Outcome({0: 20.0, 1: 10.0, 2: 15.0}, default=0))
    row = found.row()
    assert (row.constants, row.microseconds, row.default_microseconds) == (
        (("BLOCK", 2),),
        10.0,
        20.0,
    )
    assert (row.key, row.kernel, row.op) == ((64,), "k", "k")
    assert found.gain == pytest.approx(1.0)


def test_the_default_stays_within_the_noise():
    assert result(Outcome({0: 10.09, 1: 10.0}, default=0)).winner == 0
    assert result(Outcome({0: 10.2, 1: 10.0}, default=0)).winner == 1
    assert result(Outcome({0: 10.0, 1: 10.09}, default=1)).winner == 1


def test_several_calls_with_one_key():
    found = result(
        Outcome({0: 10.0, 1: 5.0, 2: 11.0}, default=0), Outcome({0: 10.0, 1: 40.0}, default=0)
    )
    # 1 is twice as fast in one, four times slower in the other; 2 does not run everywhere.
    assert found.winner == 0
    assert found.microseconds == pytest.approx(10.0)


def test_keys_are_told_apart():
    found = results_of([(job(n=64), Outcome({0: 1.0}, default=0)), (job(n=32), Outcome())])
    assert [one.winner for one in found] == [0, None]
    assert found[1].row() is None


def test_a_call_without_times_does_not_decide():
    found = result(Outcome({0: 10.0, 1: 5.0}, default=0), Outcome(error="out of memory"))
    assert found.winner == 1
    assert found.to_json()["errors"] == ["out of memory"]


def test_a_default_that_is_wrong():
    found = result(Outcome({1: 5.0, 2: 6.0}, wrong={0: "differs"}, default=1))
    assert (found.winner, found.default) == (1, 1)
    assert list(found.excluded()) == [("wrong", "{ BLOCK = 1 }", "differs")]

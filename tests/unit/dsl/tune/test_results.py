"""What was measured so far, and the rows that follow from it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbuild.dsl.tune.cases import make_case
from kbuild.dsl.tune.jobs import OpBenchmark, RaceJob
from kbuild.dsl.tune.results import MAX_REPETITIONS, REPETITIONS, Journal, RaceOutcome, results_of
from kbuild.ops.manifest import ManifestKernel
from kbuild.ops.section import read_section
from tests.support.sections import op_of, text_of

DONE = {
    "done": "a",
    "times": {"0": 1.5, "2": 1.0, "3": 2},
    "failed": {"1": "no"},
    "wrong": {},
    "default": 0,
    "alive": [0, 2, 3],
}


def test_there_and_back(tmp_path):
    file = tmp_path / "folder" / "j.jsonl"
    journal = Journal(file)
    assert journal.outcome("a") is None
    journal.add(DONE)
    journal.add({"crashed": "a", "candidate": 2, "reason": "signal 11"})
    for one in (journal, Journal(file)):
        outcome = one.outcome("a")
        assert outcome.times == {0: 1.5, 3: 2.0}
        assert outcome.failed == {1: "no", 2: "signal 11"}
        assert outcome.default == 0
        assert one.contenders("a", [0, 1, 2, 3]) == [0, 3]
        assert one.outcome("b") is None


def test_a_line_that_was_cut_off_swallows_nothing(tmp_path):
    file = tmp_path / "j.jsonl"
    file.write_text('{"done": "b", "tim')
    journal = Journal(file)
    assert journal.outcome("b") is None
    journal.add(DONE)
    assert Journal(file).outcome("a") is not None


def test_other_lines(tmp_path):
    file = tmp_path / "j.jsonl"
    file.write_bytes(b'\xff\n[]\n1\n{"x": 1}\n')
    Journal(file).add(DONE)
    assert Journal(file).outcome("a") is not None


def test_what_several_processes_measured(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    for number, us in enumerate((10.0, 10.15, 10.1)):
        assert not journal.is_complete("a")
        times = {"0": us, **({"1": 9.0} if number else {})}
        journal.add({"done": "a", "repetition": number, "times": times, "alive": [0], "default": 0})
    assert journal.is_complete("a")
    assert journal.repetitions("a") == {0, 1, 2}
    outcome = journal.outcome("a")
    assert outcome.times == {0: 10.1}
    assert outcome.spread(0) == pytest.approx(0.15 / 10.1)


def _add_all(journal: Journal, readings: Sequence[float]) -> int:
    """Add processes' times of a job until nothing more is wanted; how many that were."""
    for number, us in enumerate(readings):
        if journal.is_complete("a"):
            return number
        times = {"0": us, "1": us * 1.5 ** (number % 2)}
        journal.add({"done": "a", "repetition": number, "times": times, "alive": [0, 1]})
    return len(readings)


def test_processes_that_disagree_are_followed_by_more(tmp_path):
    apart = [100.0, 102.0, 99.0, 101.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0]
    journal = Journal(tmp_path / "apart.jsonl")
    count = _add_all(journal, apart)
    assert REPETITIONS < count < MAX_REPETITIONS
    assert journal.outcome("a").times[0] == pytest.approx(100.2, abs=0.3)
    hopeless = [100.0, 110.0] * 10
    assert _add_all(Journal(tmp_path / "hopeless.jsonl"), hopeless) == MAX_REPETITIONS
    same = [100.0, 100.5, 100.2, 100.0]
    assert _add_all(Journal(tmp_path / "same.jsonl"), same) == REPETITIONS


def test_what_cannot_be_measured_is_not_tried_again(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.add({"done": "a", "repetition": 0, "error": "out of memory"})
    assert journal.is_complete("a")


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

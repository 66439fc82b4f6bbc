"""What was measured so far."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbuild.dsl.tune.results import MAX_REPETITIONS, REPETITIONS, Journal

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

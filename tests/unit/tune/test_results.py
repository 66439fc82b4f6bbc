"""What was measured so far."""

from __future__ import annotations

from kbuild.tune.results import Journal

DONE = {"done": "a", "times": {"0": 1.5, "3": 2}, "failed": {"1": "no"}, "wrong": {}, "default": 0}


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
        assert one.crashed("a") == {2}
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

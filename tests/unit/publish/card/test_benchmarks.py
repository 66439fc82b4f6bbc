"""Figures of cards: from files of results, and in words."""

from __future__ import annotations

import json

import pytest

from kbuild.publish.card.benchmarks import read_results
from kbuild.publish.card.sections import size_text, time_text


def test_what_kbuild_measured_has_the_figures_of_its_table(tmp_path):
    own = {"mean_ms": 3.0, "std_ms": 9.0, "median_ms": 2.0, "iqr_ms": 0.5, "ref_mean_ms": 2.9}
    entry = {"workload": "B.a", "timingResults": own, "reference": {"median_ms": 1.8}}
    of_client = {key: value for key, value in own.items() if key != "median_ms"}
    for name, result in {
        "a": {**entry, "speedup": 0.89},
        "b": entry,
        "c": {"workload": "B.a", "timingResults": of_client},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": [result]}))
    (timing,), (older,), (client,) = (run.timings for run in read_results(tmp_path))
    assert (timing.time, timing.deviation, timing.reference) == (2.0, 0.25, 1.8)
    assert (timing.speedup, older.speedup) == (0.89, 0.9)
    assert (client.time, client.deviation, client.reference) == (3.0, 9.0, 2.9)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.00042, "0.42 µs"),
        (0.0123, "12.3 µs"),
        (0.9996, "1 ms"),
        (1.2345, "1.23 ms"),
        (123.4, "123 ms"),
        (1200, "1.2 s"),
        (1234567, "1230 s"),
    ],
)
def test_times_in_words(milliseconds, text):
    assert time_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, ""), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2.5e9, "2.5 GB")]
)
def test_sizes_in_words(size, text):
    assert size_text(size) == text

"""Figures of cards: from files of results, and in words."""

from __future__ import annotations

import json

from kbuild.publish.card.facts import read_results


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

"""Charts: what is drawn where, and that it is an SVG that everybody can read."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.publish.card.benchmarks import chart_svg, make_chart, run_of
from kbuild.publish.card.model import BenchmarkRun, Timing
from kbuild.publish.card.sections import size_text, time_text

SVG = "{http://www.w3.org/2000/svg}"
TIMES = st.floats(1e-4, 1e4)


def run(*timings: Timing, name: str = "A GPU") -> BenchmarkRun:
    return BenchmarkRun("gpu", name, "Torch 2.13.0", "1a2b3c4", timings)


def test_speedups_when_all_have_a_reference():
    chart = make_chart(
        run(Timing("a", 1.0, reference=4.0), Timing("b", 2.0, reference=1.0)), "relu"
    )
    assert [bar.value[:-1] for bar in chart.bars] == ["4.00", "0.50"]
    assert not chart.dots
    zero, quarter = chart.ticks[0].x, (chart.bars[0].x - chart.ticks[0].x) / 4
    base = next(tick for tick in chart.ticks if tick.is_base)
    assert base.x - zero == pytest.approx(quarter, abs=0.2)
    assert chart.description.startswith("a: 1 ms against 4 ms, 4.00 times as fast.")


def test_times_when_one_has_none():
    chart = make_chart(run(Timing("a", 1.0, reference=4.0), Timing("b", 2.0)), "relu")
    assert [bar.value for bar in chart.bars] == ["1 ms", "2 ms"]
    assert not chart.dots
    assert not any(tick.is_base for tick in chart.ticks)


def test_what_kbuild_measured_has_the_figures_of_its_table():
    own = {"mean_ms": 3.0, "std_ms": 9.0, "median_ms": 2.0, "iqr_ms": 0.5, "ref_mean_ms": 2.9}
    entry = {"workload": "B.a", "timingResults": own, "reference": {"median_ms": 1.8}}
    (timing,) = run_of({"results": [{**entry, "speedup": 0.89}]}, "gpu").timings
    assert (timing.time, timing.deviation, timing.reference) == (2.0, 0.25, 1.8)
    assert timing.speedup == 0.89
    (older,) = run_of({"results": [entry]}, "gpu").timings
    assert older.speedup == 0.9
    del own["median_ms"]
    (client,) = run_of({"results": [{"workload": "B.a", "timingResults": own}]}, "gpu").timings
    assert (client.time, client.deviation, client.reference) == (3.0, 9.0, 2.9)


def test_times_far_apart_get_a_logarithmic_axis():
    chart = make_chart(run(Timing("a", 0.005), Timing("b", 5.0)), "relu")
    assert chart.dots
    assert [tick.label for tick in chart.ticks] == ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]
    steps = {round(b.x - a.x, 1) for a, b in zip(chart.ticks, chart.ticks[1:], strict=False)}
    assert max(steps) - min(steps) <= 0.2


@given(
    st.lists(st.tuples(TIMES, TIMES | st.none()), min_size=1, max_size=8),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=40),
)
def test_any_chart_is_valid_and_said_in_words(measured, name):
    timings = [
        Timing(f"{name}{at}", mean, None, None, ref) for at, (mean, ref) in enumerate(measured)
    ]
    made = run(*timings, name=name)
    chart = make_chart(made, "relu")
    for x in [tick.x for tick in chart.ticks] + [bar.x for bar in chart.bars]:
        assert math.isfinite(x)
        assert 189 <= x <= 591
    root = ET.fromstring(chart_svg(made, "relu"))  # noqa: S314 - made here
    assert root.tag == f"{SVG}svg"
    labels = root.attrib["aria-labelledby"].split()
    words = {node.attrib.get("id"): node.text for node in root.iter()}
    assert all(words[label] for label in labels)
    bars = list(root.iter(f"{SVG}g"))
    assert len(bars) == len(timings)
    assert [bar.findtext(f"{SVG}title") for bar in bars] == [bar.detail for bar in chart.bars]


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

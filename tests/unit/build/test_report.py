from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kbuild.build.report import VariantOutcome, render_report, timeline
from kbuild.build.unit_log import UnitLog, UnitRecord, read_log
from kbuild.system.budget import Budget
from tests.support.device_code import MACHINE, PTX, elf, fatbin

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"


def unit(name: str, start: float, end: float, **facts: object) -> UnitRecord:
    known = {"variant": CPU, "language": "CXX", "status": 0, "cache": "miss", "user": end - start}
    return UnitRecord(name, start=start, end=end, **{**known, **facts})


@pytest.fixture
def log() -> UnitLog:
    killed = "the system killed the compiler of b.cu (peak 5.1 GB); it was retried alone"
    return UnitLog(
        (
            unit("a.cpp", 100, 104, peak=600, torch=1800, kib=40960, headers=2100),
            unit("b.cu", 100, 110, variant=CUDA, peak=5222, killed=killed),
            unit("c<1>.cpp", 104, 104.01, cache="hit", user=0.0),
            unit("d.cpp", 105, 106, cache="off", why="it uses __DATE__"),
            unit("e.cpp", 106, 107, status=1),
        ),
        ("the object cache cannot be written: disk full",),
    )


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def text(log: UnitLog, tmp_path: Path) -> str:
    (tmp_path / "relu.so").write_bytes(b"x" * 2048)
    outcomes = [
        VariantOutcome(CPU, "failed", 7.0),
        VariantOutcome(CUDA, "built", 12.0, ("8.0", "9.0a"), tmp_path),
    ]
    return render_report("my <kernel>", outcomes, log, Budget(4, 20480))


def test_the_page_needs_nothing_from_elsewhere(text: str) -> None:
    page = Page(text)
    assert not [tag for tag, attrs in page.tags if "src" in attrs or "href" in attrs]
    assert not re.search(r"https?:|@import|url\(", text)
    assert {tag for tag, _ in page.tags} >= {"style", "script", "svg", "table"}
    assert "prefers-color-scheme: dark" in text


def test_the_page_says_what_happened(text: str) -> None:
    shown = Page(text).text
    for part in (
        "my <kernel>", "4 processes and 20.0 GB", "1 of 5", "5.1 GB", "8.0, 9.0a", "2.0 kB",
        "it was retried alone", "d.cpp", "is never cached: it uses __DATE__", "disk full",
        "c<1>.cpp", "at most 5.7 GB together", "2100", "1800 40.0 MB",
    ):  # fmt: skip
        assert part in shown, part


def test_every_unit_has_a_bar_and_a_row(text: str) -> None:
    page = Page(text)
    bars = [attrs for tag, attrs in page.tags if (attrs.get("class") or "").startswith("bar ")]
    assert len(bars) == 5
    assert [("hit" in bar["class"].split()) for bar in bars if bar["class"]].count(True) == 1
    assert sum(1 for tag, _ in page.tags if tag == "tr") == 2 + 2 + 5


def test_workers_have_lanes_of_their_own() -> None:
    units = [
        UnitRecord(
            f"{number}.cu", "v", "CUDA", float(number), number + 1.0, 0, "miss", worker=worker
        )
        for number, worker in enumerate(("a", "b", "a", ""))
    ]
    layout = timeline(units)
    assert [bar.lane for bar in layout.bars] == [1, 2, 1, 0]
    assert [(lanes.label, lanes.first, lanes.count) for lanes in layout.workers] == [
        ("this machine", 0, 1),
        ("a", 1, 1),
        ("b", 2, 1),
    ]
    page = render_report(
        "k", [VariantOutcome("v", "built", 7.0)], UnitLog(elsewhere=tuple(units)), Budget(1, 100)
    )
    assert '<div class="worker" style="top: 26px; height: 26px">a</div>' in page


def test_builds_without_a_cluster_name_no_workers(log: UnitLog, text: str) -> None:
    assert timeline(log.units).workers == ()
    assert "this machine" not in text


def test_lanes_hold_one_unit_at_a_time(log: UnitLog) -> None:
    layout = timeline(log.units)
    assert [bar.lane for bar in layout.bars] == [0, 1, 0, 0, 0]
    assert (layout.lanes, layout.seconds, layout.peak) == (2, 10, 5822)
    assert [tick.label for tick in layout.ticks][:3] == ["0 s", "1 s", "2 s"]
    assert all(0 <= bar.left <= bar.left + bar.width <= 100.001 for bar in layout.bars)


def test_images_have_bars_and_are_no_objects(log: UnitLog) -> None:
    image = unit("gemm sm_90a width=64", 101, 103, language="cute", image=True, peak=300)
    found = unit("gemm sm_80 width=64", 102, 102, language="cute", image=True, cache="hit")
    both = UnitLog(tuple(sorted((*log.units, image, found), key=lambda one: one.start)))
    assert both.summary == log.summary
    assert both.hits == log.hits
    page = Page(render_report("k", [VariantOutcome(CPU, "built", 7.0)], both, Budget(4, 20480)))
    titles = [attrs.get("title") or "" for tag, attrs in page.tags if tag == "div"]
    assert sum(title.startswith("gemm sm_") for title in titles) == 2
    assert "1 of 5" in page.text


def test_a_run_without_units_has_a_page_too() -> None:
    assert timeline(()).lanes == 0
    assert "Timeline" in render_report("relu", (), UnitLog(), Budget(1, 100))


def test_the_log_is_read_back(tmp_path: Path) -> None:
    record = {
        "unit": "a.cpp", "variant": CPU, "language": "CXX", "start": 1.0, "end": 2.0,
        "status": 0, "cache": "hit", "later": "unknown to this kbuild",
    }  # fmt: skip
    lines = [json.dumps(record), '{"warning": "w"}', '{"warning": "w"}', "{torn", "[]", ""]
    (tmp_path / "log").write_text("\n".join(lines))
    log = read_log(tmp_path / "log")
    assert [unit.unit for unit in log.units] == ["a.cpp"]
    assert log.warnings == ("w",)
    assert log.summary == "1 of 1 object from cache"
    assert read_log(tmp_path / "none").summary == ""


def test_archs_have_the_sizes_that_the_library_says(log: UnitLog, tmp_path: Path) -> None:
    code = fatbin((MACHINE, "80"), (MACHINE, "90a"), (PTX, "80")) + fatbin((MACHINE, "80"))
    (tmp_path / "relu.so").write_bytes(elf({".nv_fatbin": code}))
    outcome = VariantOutcome(CUDA, "built", 12.0, ("8.0+PTX", "9.0a"), tmp_path)
    text = " ".join(Page(render_report("relu", [outcome], log, Budget(4, 20480))).text.split())
    assert "8.0 0.2 kB, 9.0a 0.1 kB, PTX of 8.0 0.1 kB" in text

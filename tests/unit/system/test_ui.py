from __future__ import annotations

import io
import re
import time
from contextlib import contextmanager

import pytest

from kbuild.system.errors import BuildError, ConfigError, Problem
from kbuild.system.progress import (
    ProgressBars,
    count_download,
    delayed_progress,
    left_text,
    report_current_work,
    report_work_to,
)
from kbuild.system.ui import Ui, uses_color

WRONG = Problem("build.toml", 3, "general.nmae", "unknown key", "did you mean `name`?")
DOUBT = Problem("build.toml", 0, "", "no `__all__`", severity="warning")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(clock):
    def ui(stream=io.StringIO, environ=None, **options):
        return Ui(out=stream(), err=stream(), environ=environ or {}, clock=clock, **options)

    return ui


@pytest.mark.parametrize(
    ("stream", "color", "environ", "expected"),
    [
        (io.StringIO, "auto", {}, False),
        (Terminal, "auto", {}, True),
        (Terminal, "auto", {"NO_COLOR": "1"}, False),
        (Terminal, "auto", {"NO_COLOR": ""}, True),
        (Terminal, "auto", {"TERM": "dumb"}, False),
        (io.StringIO, "auto", {"FORCE_COLOR": "1"}, True),
        (io.StringIO, "auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (io.StringIO, "always", {"NO_COLOR": "1"}, True),
        (Terminal, "never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_when_there_is_color(stream, color, environ, expected):
    assert uses_color(stream(), color, environ) is expected


def test_talk_and_data_have_their_streams(make):
    ui = make()
    ui.say("talk")
    ui.data("data")
    ui.data("")
    assert (ui._err.getvalue(), ui._out.getvalue()) == ("talk\n", "data\n")


@pytest.mark.parametrize(
    ("verbosity", "said"), [(1, "dswe"), (0, "swe"), (-1, "we"), (-2, "e"), (-3, "e")]
)
def test_verbosity(make, verbosity, said):
    ui = make(verbosity=verbosity)
    ui.detail("d")
    ui.say("s")
    ui.warn("w")
    ui.error(BuildError("e"))
    lines = ui._err.getvalue().splitlines()
    assert "".join(line.removeprefix("warning: ").removeprefix("error: ") for line in lines) == said


def test_config_errors_list_every_problem(make):
    ui = make()
    ui.error(ConfigError([WRONG, DOUBT]))
    assert ui._err.getvalue() == (
        "build.toml:3: general.nmae: unknown key\n"
        "  hint: did you mean `name`?\n"
        "build.toml: warning: no `__all__`\n"
        "error: 1 problem found\n"
    )


def test_step_says_its_time(make, clock):
    ui = make()
    with ui.step("compile"):
        clock.now += 2.5
    assert ui._err.getvalue() == "compile (2.5 s)\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""), (0.2, "about 1 s left"), (42.4, "about 42 s left"), (100, "about 2 min left"),
        (3700, "about 1 h 2 min left"),
    ],
)  # fmt: skip
def test_time_that_is_left(seconds, words):
    assert left_text(seconds) == words


def test_everything_that_a_command_fetches_is_one_line(make, clock):
    ui = make(verbosity=1)
    for name in ("cuda 13.0", "torch 2.12", "torch 2.13"):
        with ui.downloads.fetching(name):
            for _ in range(4):
                clock.now += 1
                count_download(2_000_000)
    count_download(5)
    assert ui._err.getvalue().splitlines() == [
        "fetched cuda 13.0: 8.0 MB in 4 s, 2.0 MB/s",
        "fetched torch 2.12: 8.0 MB in 4 s, 2.0 MB/s",
        "fetching: torch 2.13, 20 MB after 10 s",
        "fetched torch 2.13: 8.0 MB in 4 s, 2.0 MB/s",
    ]


@pytest.mark.parametrize("columns", [80, 110])
def test_a_bar_fits_its_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    title, label = "torch-stable-abi211-cu130-aarch64-linux", "csrc/" + "deep/" * 30 + "k.cu"
    with ProgressBars(colored=False).bar(title, 240) as bar:
        bar.update(120, 240, label, 3700.0)
        time.sleep(0.15)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line for line in re.split(r"[\r\n]+", shown) if "120/240" in line]
    assert lines
    for line in lines:
        assert len(line) <= columns
        assert "1 h 2 min left" in line
        assert line.startswith("torch-stable-abi211")
        assert "csrc/" in line


def test_progress_of_long_work_alone_is_shown(clock):
    """A bar is begun when the work has taken so long, and ended with it."""
    seen: list[str] = []

    class Bar:
        def update(self, done: int, total: int, label: str, left_s: float | None) -> None:
            seen.append(label)

    @contextmanager
    def bar():
        seen.append("begun")
        yield Bar()
        seen.append("ended")

    with delayed_progress(bar, 1.0, clock) as progress:
        progress.update(1, 0, "a.py")
        clock.now += 1.5
        progress.update(2, 0, "b.py")
    assert seen == ["begun", "b.py", "ended"]
    with delayed_progress(bar, 1.0, clock) as progress:
        progress.update(1, 0, "short")
    assert len(seen) == 3


def test_what_is_worked_on_reaches_whoever_listens():
    heard: list[str] = []
    report_current_work("nobody listens")
    with report_work_to(heard.append):
        report_current_work("a.py")
    report_current_work("nobody listens any more")
    assert heard == ["a.py"]


_WHY = "needs a compiler for cuda; none was found"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (40, ["relu-cuda  -      needs a compiler for", "                  cuda; none was found"]),
        (30, ["relu-cuda  -      needs a", *("                  " + t for t in (
            "compiler for", "cuda; none", "was found"))]),
        (200, [f"relu-cuda  -      {_WHY}"]),
    ],
)  # fmt: skip
def test_a_table_fits_its_terminal(make, monkeypatch, columns, expected):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [("relu-cpu", "ok", ""), ("relu-cuda", "-", _WHY)]
    terminal, log = make(Terminal, color="never"), make()
    for ui in (terminal, log):
        ui.table(("name", "state", "why"), rows)
    head = ["name       state  why", "relu-cpu   ok"]
    assert terminal._out.getvalue().splitlines() == [*head, *expected]
    assert log._out.getvalue().splitlines() == [*head, f"relu-cuda  -      {_WHY}"]

from __future__ import annotations

import io
import re
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from kbuild.system.errors import BuildError, ConfigError, Problem
from kbuild.system.progress import (
    Downloads,
    LogProgress,
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


def plain(text: str) -> str:
    for code in ("0", "1", "2", "32", "36", "1;31", "1;33"):
        text = text.replace(f"\x1b[{code}m", "")
    return text


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


def test_words_are_the_same_without_color(make):
    texts = []
    for color in ("never", "always"):
        ui = make(color=color)
        ui.warn("careful")
        ui.warn(DOUBT)
        ui.error(ConfigError([WRONG, DOUBT]))
        ui.error(BuildError("it broke", command="c++ x.cpp", log=Path("a.log"), hint="look"))
        with ui.step("compile"):
            pass
        texts.append(ui._err.getvalue())
    assert "\x1b" not in texts[0]
    assert "\x1b" in texts[1]
    assert plain(texts[1]) == texts[0]


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


def test_failed_step(make, clock):
    ui = make()

    def work() -> None:
        with ui.step("compile"):
            clock.now += 1
            raise BuildError("no")

    with pytest.raises(BuildError):
        work()
    assert ui._err.getvalue() == "compile: failed after 1.0 s\n"


def test_step_folds_on_github(make):
    ui = make(environ={"CI": "true", "GITHUB_ACTIONS": "true"})
    with ui.step("compile"):
        ui.say("a.cpp")
    assert ui._err.getvalue() == "::group::compile\na.cpp\ncompile (0.0 s)\n::endgroup::\n"


def test_table(make):
    ui = make()
    ui.table(("name", "n"), [("long name", "1"), ("x", "")])
    assert ui._out.getvalue() == "name       n\nlong name  1\nx\n"


def test_plain_progress_is_seldom(clock):
    said: list[str] = []
    lines = LogProgress("build", said.append, clock)
    for done in range(100):
        clock.now += 0.5
        lines.update(done, 100, f"u{done}.cpp")
    assert 8 <= len(said) <= 12
    assert said[0] == "build: 10/100 after 6 s, u10.cpp"


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


def test_what_is_fetched_at_once_is_one_line(clock):
    lines: list[str] = []

    class Line:
        def update(self, done, total, label, left_s=None):
            lines.append(label)

    downloads = Downloads(lambda: nullcontext(Line()), clock=clock)
    with downloads.fetching("torch 2.12"), downloads.fetching("torch 2.13"):
        count_download(3_000_000)
    assert lines[-1] == "torch 2.12 and 1 more, 3 MB"


def test_bars_are_shown_one_below_the_other(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    bars = ProgressBars(colored=False)
    with bars.bar("building", 2) as building, bars.bar("fetching", 0) as fetching:
        building.update(1, 2, "a.cu")
        fetching.update(0, 0, "torch 2.13, 20 MB")
        time.sleep(0.15)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"building.*1/2.*a\.cu\s+fetching.*torch 2\.13, 20 MB", shown)


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


def test_what_is_written_beside_a_bar_is_not_wrapped(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    line, caret = f"    3 | {'x ' * 60}", f"      | {' ' * 90}^~~~"
    with ProgressBars(colored=False).bar("build", 4) as bar:
        bar.update(1, 4, "k.cpp")
        sys.stderr.write(f"{line}\n{caret}\n")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert f"{line.rstrip()}" in shown
    assert caret in shown


def test_short_work_says_nothing(make):
    ui = make()
    with ui.progress("build", 3) as progress:
        progress.update(1, 3, "a.cpp")
    assert ui._err.getvalue() == ""


def test_quiet_progress(make):
    ui = make(Terminal, verbosity=-1)
    with ui.progress("build", 3) as progress:
        progress.update(1, 3, "a.cpp")
    assert ui._err.getvalue() == ""


def test_progress_of_long_work_alone_is_shown(clock):
    """A bar is begun when the work has taken so long, and ended with it."""
    seen: list[str] = []

    class Bar:
        def update(self, done: int, total: int, label: str) -> None:
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


def test_words_are_split_where_nothing_else_gives_way(make, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    ui = make(Terminal, color="never")
    ui.table(("variant", "file"), [("torch213-cxx11-cpu-x86_64-linux", "a" * 60)])
    assert max(map(len, ui._out.getvalue().splitlines())) <= 40

"""Many builds at once: processes, time, failures and Ctrl-C; the time that is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from kbuild.system.budget import Budget, Run, open_run, other_launcher
from kbuild.system.errors import BuildError, UsageError
from kbuild.system.executor import IMAGES, CombinedProgress, VariantTask, run_tasks
from kbuild.system.processes import LocalRunner
from kbuild.toolchains import build_tools

NINJA_FILE = """
rule unit
  command = echo + >> {log}; sleep 0.15; echo - >> {log}; touch $out
"""


def run_of(folder: Path, jobs: int, deadline: float | None = None) -> AbstractContextManager[Run]:
    return open_run(Budget(jobs, 1000, deadline), folder / "cache", {})


@contextmanager
def ninja_projects(folder: Path, count: int, units: int) -> Iterator[list[Path]]:
    log = folder / "log"
    log.touch()
    trees = [folder / f"tree{number}" for number in range(count)]
    for tree in trees:
        tree.mkdir()
        builds = "".join(f"build unit{n}: unit\n" for n in range(units))
        (tree / "build.ninja").write_text(NINJA_FILE.format(log=log) + builds)
    yield trees


def most_at_once(log: Path) -> int:
    count = most = 0
    for line in log.read_text().split():
        count += 1 if line == "+" else -1
        most = max(most, count)
    return most


def test_several_ninjas_share_the_processes(tmp_path: Path) -> None:
    runner = LocalRunner()
    with ninja_projects(tmp_path, 4, 4) as trees, run_of(tmp_path, 3) as run:

        def built(tree: Path) -> bool:
            env = {**os.environ, **run.environment(tree.name, tmp_path)}
            return runner.run((str(build_tools.ninja()),), cwd=tree, env=env).ok

        tasks = [VariantTask(tree.name, lambda tree=tree: built(tree)) for tree in trees]
        assert run_tasks(tasks, run, runner.stop) == [True] * 4
        assert run.server is not None
        assert run.server.drain() == 3  # every token came back
    assert most_at_once(tmp_path / "log") in {2, 3}
    assert len((tmp_path / "log").read_text().split()) == 32
    assert not run.folder.exists()


def test_results_come_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    def work(number: int) -> int:
        time.sleep(0.05 * (4 - number))
        return number

    with run_of(tmp_path, 4) as run:
        tasks = [VariantTask(str(n), lambda n=n: work(n)) for n in range(4)]
        assert run_tasks(tasks, run, lambda: None) == [0, 1, 2, 3]
        assert run_tasks([], run, lambda: None) == []


def test_what_time_does_not_allow_is_not_started(tmp_path: Path) -> None:
    with run_of(tmp_path, 1, time.time() + 0.3) as run:
        tasks = [VariantTask(str(n), lambda: time.sleep(0.4)) for n in range(3)]
        tasks.append(VariantTask("last", lambda: 1 / 0))
        began = time.monotonic()
        assert run_tasks(tasks, run, lambda: None) == [None] * 4
        assert time.monotonic() - began < 5
        assert run.server is not None
        assert run.server.drain() <= 1


def test_what_is_prepared_takes_no_token(tmp_path: Path) -> None:
    prepared = [threading.Event() for _ in range(3)]

    def work(number: int) -> bool:
        return prepared[min(number + 1, 2)].wait(10)

    with run_of(tmp_path, 1) as run:
        tasks = [VariantTask(str(n), lambda n=n: work(n), prepared[n].set) for n in range(3)]
        assert run_tasks(tasks, run, lambda: None) == [True] * 3


def test_two_are_prepared_at_a_time(tmp_path: Path) -> None:
    now, most, lock, pair = [0], [0], threading.Lock(), threading.Barrier(2)

    def prepare() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        pair.wait(10)
        with lock:
            now[0] -= 1

    with run_of(tmp_path, 8) as run:
        run_tasks([VariantTask(str(n), lambda: None, prepare) for n in range(8)], run, lambda: None)
    assert most == [2]


def test_an_exception_ends_the_others(tmp_path: Path) -> None:
    runner = LocalRunner()
    said = []

    def fails() -> None:
        time.sleep(0.2)
        raise BuildError("no")

    def sleeps() -> None:
        said.append(runner.run(("sleep", "30")).returncode)

    with run_of(tmp_path, 2) as run:
        began = time.monotonic()
        with pytest.raises(BuildError, match="no"):
            run_tasks([VariantTask("a", fails), VariantTask("b", sleeps)], run, runner.stop)
        assert time.monotonic() - began < 20
        assert run.stopped.is_set()
    assert said == [-signal.SIGTERM]
    assert runner.run(("true",)).returncode == 127


def test_what_compilers_put_into_tmpdir_goes_with_the_run(tmp_path: Path) -> None:
    runner, argv = LocalRunner(), ("sh", "-c", 'echo x > "$TMPDIR/cc.s" && echo "$TMPDIR"')
    with run_of(tmp_path, 1) as run:
        env = {**os.environ, **run.environment("torch-cpu", tmp_path)}
        done = runner.run(argv, env=env)
        assert done.ok, done.output
        left = Path(done.output.strip(), "cc.s")
        assert left.is_file()
        assert left.is_relative_to(run.folder)
        assert len(run.lock) == (sys.platform != "win32")
    assert not left.exists()


CTRL_C = """
import sys, time
from pathlib import Path
from kbuild.system.budget import Budget, open_run
from kbuild.system.executor import VariantTask, run_tasks
from kbuild.system.processes import LocalRunner
runner = LocalRunner()
folder = Path(sys.argv[1])
def work(n):
    return runner.run((sys.argv[2],), cwd=folder / f"tree{n}").returncode
with open_run(Budget(2, 1000), folder / "cache", {}) as run:
    print(run.folder, flush=True)
    try:
        tasks = [VariantTask(str(n), lambda n=n: work(n)) for n in range(3)]
        run_tasks(tasks, run, runner.stop)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_all_children(tmp_path: Path) -> None:
    for number in range(3):
        tree = tmp_path / f"tree{number}"
        tree.mkdir()
        command = f"echo $$$$ >> {tmp_path}/pids; exec sleep 60"
        (tree / "build.ninja").write_text(f"rule r\n  command = {command}\nbuild a: r\n")
    process = subprocess.Popen(  # noqa: TID251
        (sys.executable, "-c", CTRL_C, str(tmp_path), str(build_tools.ninja())),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    pids = wait_for_pids(tmp_path / "pids", 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    folder, word = output.split()
    assert word == "interrupted"
    assert not Path(folder).exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len((tmp_path / "pids").read_text().split()) == 2


def wait_for_pids(path: Path, count: int) -> list[int]:
    for _ in range(200):
        if path.exists() and len(path.read_text().split()) == count:
            return [int(pid) for pid in path.read_text().split()]
        time.sleep(0.05)
    raise AssertionError("the children did not start")


def test_another_launcher_must_be_there() -> None:
    assert other_launcher({}) == ""
    assert other_launcher({"KBUILD_COMPILER_LAUNCHER": "sh"}) == "sh"
    with pytest.raises(UsageError, match="there is no program `no-such-cache`"):
        other_launcher({"KBUILD_COMPILER_LAUNCHER": "no-such-cache"})


class Progress:
    """Remembers what is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, str]] = []
        self.left: list[float | None] = []

    def update(self, done: int, total: int, label: str, left_s: float | None = None) -> None:
        self.seen.append((done, total, label))
        self.left.append(left_s)


def test_the_total_of_builds_that_are_known_stays() -> None:
    progress, now = Progress(), [0.0]
    units = {"a.cpp": 10.0, "b.cpp": 10.0, "so": 0.0}
    together = CombinedProgress(progress, {"one": units, "two": units}, lambda: now[0])
    first, second = together.part("one"), together.part("two")
    first(1, 2, "an image")
    first(2, 2, "another")
    now[0] = 10.0
    first(1, 3, "a.cpp")  # objects come after images
    second(1, 1, "b.cpp")
    first(3, 3, "so")
    together.finish("two")
    together.finish("one")
    counts = [(done, total) for done, total, _ in progress.seen]
    assert counts == sorted(counts)
    assert {total for _, total in counts} == {6}
    assert counts[-1] == (6, 6)
    assert progress.left[:3] == [None, None, None]  # less than a third
    assert progress.left[3] == pytest.approx(10)  # ten seconds for a half
    assert progress.left[-1] == 0


@pytest.mark.parametrize(
    ("after", "left"),
    [
        # The running unit has worked for eighty seconds.
        pytest.param({"last.cu": 100.0}, 120, id="more than a unit"),
        pytest.param({}, None, id="less than a unit, of which nobody knows how far it is"),
    ],
)
def test_what_a_build_has_in_hand_advances(after: dict[str, float], left: float | None) -> None:
    progress, now = Progress(), [0.0]
    units = {"long.cu": 100.0}
    expected = {"one": units, "two": {**units, **after}}
    together = CombinedProgress(progress, expected, lambda: now[0])
    first = together.part("one")
    now[0] = 20.0
    together.part("two")
    now[0] = 100.0
    first(1, 1, "long.cu")
    assert progress.left == [left and pytest.approx(left)]


def test_a_build_that_tells_nothing_is_done_when_it_ends() -> None:
    progress, now = Progress(), [0.0]
    units = {"a.cpp": 10.0, "b.cpp": 10.0, "c.cpp": 10.0, "d.cpp": 10.0}
    together = CombinedProgress(progress, {"one": units, "two": units}, lambda: now[0])
    together.finish("one")
    update = together.part("two")
    now[0] = 5.0
    update(1, 4, "a.cpp")
    assert progress.left == [None, pytest.approx(15)]


@pytest.mark.parametrize(("is_guessed", "before"), [(True, None), (False, 45.0)])
def test_kinds_of_units_have_speeds_of_their_own(is_guessed: bool, before: float | None) -> None:
    progress, now = Progress(), [0.0]
    units = {f"{IMAGES}k for sm_80": 10.0, "a.cpp": 10.0, "b.cpp": 10.0}
    together = CombinedProgress(progress, {"one": units}, lambda: now[0], is_guessed=is_guessed)
    update = together.part("one")
    now[0] = 22.5
    update(1, 1, f"{IMAGES}k: op sm_80")
    now[0] = 25.5
    update(1, 2, "a.cpp")
    # Without times of earlier builds, nobody knows at first how long sources take beside images.
    assert progress.left == [before, pytest.approx(3.0 if is_guessed else 12.75)]


def test_images_are_done_by_their_share() -> None:
    progress, now = Progress(), [0.0]
    units = {f"{IMAGES}k for sm_80": 50.0, f"{IMAGES}k for sm_90": 50.0}
    update = CombinedProgress(progress, {"one": units}, lambda: now[0]).part("one")
    now[0] = 30.0
    update(5, 10, f"{IMAGES}k: op sm_80 float32")
    update(10, 10, f"{IMAGES}k: op sm_90 float32")
    assert progress.left == [pytest.approx(30), pytest.approx(0)]


def test_images_of_one_kernel_are_no_progress_of_another() -> None:
    progress = Progress()
    units = {f"{IMAGES}{kernel} for sm_80": 1.0 for kernel in ("a", "b")}
    update = CombinedProgress(progress, {"one": {**units, "so": 0.0}}).part("one")
    update(9, 9, f"{IMAGES}a: op sm_80")
    update(1, 9, f"{IMAGES}b: op sm_80")
    update(9, 9, f"{IMAGES}b: op sm_80")
    assert [done for done, _, _ in progress.seen] == [1, 1, 2]
    assert progress.seen[-1][1:] == (3, "op sm_80")


def test_a_run_that_keeps_nothing(tmp_path: Path) -> None:
    environ = {"KBUILD_COMPILER_LAUNCHER": sys.executable}
    with open_run(Budget(1, 1000), tmp_path, environ, keeps=False) as run:
        assert not run.keeps
        assert not run.tool  # another cache is a cache
        assert str(tmp_path) not in run.environment("v", tmp_path / "p").values()

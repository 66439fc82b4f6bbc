"""Workers that fail in every way, what is kept, and what is shared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbuild.system.cache import IMAGES, Cache
from kbuild.system.errors import BuildError, IncompleteError
from tests.support.fake_dsl import FakeDslRun, Kernel, shop, unit

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bench(tmp_path):
    with shop(tmp_path) as found:
        yield found


def test_images_in_the_order_of_the_units(bench: FakeDslRun):
    units = [unit(number) for number in range(6)]
    told: list[tuple[int, int]] = []
    made = bench.compile(*units, tell=lambda done, total, _: told.append((done, total)))
    assert [one.unit for one in made] == units
    assert {one.code for one in made} == {b"code" * 8}
    assert told == [(number, 6) for number in range(1, 7)]
    image = made[0].image
    assert (image.entry, image.arch, image.language) == ("k", "sm_90a", "fake")
    assert dict(image.compiler) == {"fake": "1.0"}


def test_nothing_is_started_for_what_is_kept(tmp_path):
    with shop(tmp_path) as bench:
        functions = bench.compiler.describe(Kernel(), bench.root)
        first = bench.compile(unit(1), unit(2))
        lines = len(bench.log)
    with shop(tmp_path) as bench:
        assert bench.compiler.describe(Kernel(), bench.root) == functions
        assert bench.compile(unit(1), unit(2)) == first
        assert len(bench.log) == lines
        assert bench.compiler._pool.count == 0
        bench.compile(unit(2), unit(3))
        assert sorted(bench.numbers()) == ["1", "2", "3"]


def test_a_changed_source_is_compiled_again(bench: FakeDslRun):
    bench.compile(unit(1))
    bench.write(more=1)
    bench.compile(unit(1))
    assert bench.numbers() == ["1", "1"]


def test_the_switch_of_the_cache(tmp_path):
    for _ in range(2):
        with shop(tmp_path, keeps=False) as bench:
            bench.compile(unit(1))
            bench.compile(unit(1))
    assert bench.numbers() == ["1", "1"]
    assert not (tmp_path / "cache" / "images").exists()


def test_an_entry_of_another_shape_is_compiled_again(tmp_path):
    cache = Cache(tmp_path / "cache", IMAGES)
    for _ in range(2):
        with shop(tmp_path) as bench:
            (one,) = bench.compile(unit(1))
            assert one.code == b"code" * 8
        (entry,) = cache.entries()
        cache.put(entry.key, b"{}", b"code")
    assert bench.numbers() == ["1", "1"]


def test_a_source_that_is_refused(bench: FakeDslRun):
    bench.write(refuse=True)
    with pytest.raises(BuildError, match=r"^kernel\.k: k\.py:3: no\n  hint: mend it"):
        bench.compiler.describe(Kernel(), bench.root)


def test_a_source_that_is_not_there(bench: FakeDslRun):
    with pytest.raises(BuildError, match=r"kernel\.k\.src: `other\.py` cannot be read: No such"):
        bench.compiler.describe(Kernel(("other.py",)), bench.root)


@pytest.mark.parametrize("how", ["crash", "exit", "garbage", "other"])
def test_one_failure_is_survived(bench: FakeDslRun, how: str):
    made = bench.compile(unit(1), unit(2, do=how), unit(3))
    assert len(made) == 3
    assert sorted(bench.numbers()) == ["1", "2", "2", "3"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("crash", "the compiler was killed by SIGSEGV, 2 times"),
        ("exit", "the compiler ended with 3, 2 times"),
        ("garbage", "the compiler sent output that is not JSON, 2 times"),
        ("other", "the compiler answered a different request, 2 times"),
    ],
)
def test_lasting_failures_are_reported_and_the_others_made(bench: FakeDslRun, how: str, words: str):
    with pytest.raises(BuildError) as caught:
        bench.compile(unit(1), unit(2, do=how, always=True), unit(3))
    assert f"kernel.k: {words} (1 of 3 units)" in str(caught.value)
    assert ("LLVM ERROR: it broke" in caught.value.excerpt) == (how == "crash")
    assert len(bench.compile(unit(1), unit(3))) == 2
    assert sorted(bench.numbers()) == ["1", "2", "2", "3"]


def test_a_fault_of_the_worker_is_told_with_its_words(bench: FakeDslRun):
    """Its answers end before it does; it is not ended meanwhile."""
    with pytest.raises(BuildError, match="the compiler ended with 1, 2 times") as caught:
        bench.compile(unit(1), unit(2, do="raise", always=True))
    assert "LookupError: an oversight" in caught.value.excerpt


@pytest.mark.parametrize("how", ["hang", "spin"])
def test_a_compiler_that_does_not_come_back(tmp_path, how):
    with shop(tmp_path, patience=1.0) as bench:
        assert len(bench.compile(unit(1), unit(2, do=how))) == 2
        with pytest.raises(BuildError, match="the compiler gave no answer within 1 s, 2 times"):
            bench.compile(unit(3, do=how, always=True))


def test_prints_are_no_answers(bench: FakeDslRun):
    assert len(bench.compile(unit(1, do="print"), unit(2, do="print"))) == 2
    assert sorted(bench.numbers()) == ["1", "2"]


def test_refusals_name_the_line_and_each_reason_once(bench: FakeDslRun):
    refused = [unit(number, do="refuse") for number in (2, 3)]
    with pytest.raises(BuildError) as caught:
        bench.compile(unit(1), *refused)
    assert str(caught.value) == (
        "kernel.k: k.py:7: cannot compile this (2 of 3 units)\n"
        "    y = x\n"
        "        ^\n"
        "    (k sm_90a float16 number=2 do=refuse and 1 more)\n"
        "  hint: mend it"
    )


def test_an_empty_image_is_refused(bench: FakeDslRun):
    with pytest.raises(BuildError, match="the compiler produced an empty image"):
        bench.compile(unit(1, empty=True))


def test_what_does_not_fit_is_left_out(tmp_path):
    for _ in range(2):  # the second time from the cache
        notes: list[str] = []
        with shop(tmp_path) as bench:
            made = bench.compile(unit(1), unit(2, shared=300000), note=notes.append)
        assert [dict(one.unit.options)["number"] for one in made] == [1]
        words = "left out, it needs 300000 bytes of shared memory, but 232448 are available"
        assert notes == [f"kernel.k: k sm_90a float16 number=2 shared=300000: {words}"]
    assert sorted(bench.numbers()) == ["1", "2"]


def test_variants_that_want_the_same_wait_for_each_other(bench: FakeDslRun):
    units = [unit(number, seconds=0.05) for number in range(8)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: bench.compile(*units), range(3)))
    assert results[0] == results[1] == results[2]
    assert sorted(bench.numbers(), key=int) == [str(number) for number in range(8)]


def test_no_more_than_the_jobs_of_the_run(bench: FakeDslRun):
    """Two variants have a token each, as they do in a build; further ones are taken per unit."""
    server = bench.run.server
    assert server is not None

    def variant(number: int):
        assert server.acquire(lambda: False)
        try:
            units = [unit(10 * number + index, seconds=0.02) for index in range(8)]
            return bench.compile(*units)
        finally:
            server.release()

    with ThreadPoolExecutor(4) as pool:
        assert [len(made) for made in pool.map(variant, range(4))] == [8] * 4
    assert bench.most_at_once() == 2
    assert bench.compiler._pool.count == 2
    assert server.drain() == 2


def test_no_more_than_the_memory_of_the_run(tmp_path):
    """A worker is taken to hold 600 MiB."""
    with shop(tmp_path, jobs=2, memory=1000) as bench:
        bench.compile(*(unit(number, seconds=0.02) for number in range(6)))
    assert bench.most_at_once() == 1


def test_the_end_of_the_run(bench: FakeDslRun):
    """Ctrl-C: the pipeline closes the compiler, and whoever compiles learns of it."""
    end = threading.Timer(0.5, bench.compiler.close)
    end.start()
    began = time.monotonic()
    with pytest.raises(IncompleteError):
        bench.compile(*(unit(number, seconds=60) for number in range(4)))
    end.join()  # the first worker's end is learnt of before the last one's
    assert time.monotonic() - began < 10
    for line in bench.log:
        with pytest.raises(ProcessLookupError):
            os.kill(int(line[3]), signal.SIGCONT)


SCRIPT = """
from pathlib import Path
from tests.support.fake_dsl import shop, unit
with shop(Path({folder!r})) as bench:
    bench.compile(unit(1, do="spin", seconds=600), unit(2, do="hang"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the life line is a signal of Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_kbuild(tmp_path, number):
    """Even those that are deep in a compiler."""
    script = SCRIPT.format(folder=str(tmp_path))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    kbuild = subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.DEVNULL)  # noqa: TID251
    log = tmp_path / "log"
    while not log.exists() or log.read_text().count("start") < 2:
        assert kbuild.poll() is None
        time.sleep(0.02)
    workers = [int(line.split()[3]) for line in log.read_text().splitlines()]
    kbuild.send_signal(number)
    kbuild.wait(20)
    deadline = time.monotonic() + 5
    while any(map(_runs, workers)):
        assert time.monotonic() < deadline, "a worker is left"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"

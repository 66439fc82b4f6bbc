"""Units that come to the same kernel: it is compiled once, whoever names it first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kbuild.build.unit_log import read_log
from kbuild.system.errors import BuildError
from tests.support.fake_dsl import BOUND, FakeDslRun, Kernel, shop, unit

SAME = {"kernel": "a" * 64}


@pytest.fixture
def bench(tmp_path):
    with shop(tmp_path) as found:
        yield found


def test_one_compilation_for_each_kernel(bench: FakeDslRun):
    units = [unit(number, **SAME) for number in range(5)] + [unit(9, kernel="b")]
    made = bench.compile(*units)
    assert [one.unit for one in made] == units
    assert {one.code for one in made} == {b"code" * 8}
    assert len(bench.made()) == 2
    assert bench.made()[-1] == "9"
    assert sorted(bench.numbers()) == ["0", "1", "2", "3", "4", "9"]


def test_constants_are_the_units_own(bench: FakeDslRun):
    """What the code needs is known to whom it was compiled for."""
    one, other = bench.compile(unit(1, **SAME, shared=64), unit(2, **SAME))
    assert (one.image.constants, other.image.constants) == ({"number": 1}, {"number": 2})
    assert one.image.shared == other.image.shared
    assert one.code == other.code


def test_what_is_too_large_is_so_for_all(bench: FakeDslRun):
    notes: list[str] = []
    large = {**SAME, "shared": 1 << 20}
    made = bench.compile(unit(1, **large), unit(2, **large), unit(3), note=notes.append)
    assert [one.unit for one in made] == [unit(3)]
    assert len(notes) == 2


def test_nobody_waits_at_a_worker(bench: FakeDslRun):
    """While one compiles, the other worker asks for all that is left, and is told no."""
    bench.compile(*(unit(n, **SAME, seconds=1.0) for n in range(4)))
    assert len(bench.made()) == 1
    words = [line[1] for line in bench.log]
    assert words.index("end") > words.index("known")


def test_it_is_kept_beyond_the_run_and_the_source(tmp_path):
    with shop(tmp_path) as bench:
        bench.compile(unit(1, **SAME))
    with shop(tmp_path) as bench:
        bench.write(more=1)
        (made,) = bench.compile(unit(2, **SAME))
    assert made.code == b"code" * 8
    assert bench.numbers() == ["1", "2"]
    assert bench.made() == ["1"]


def test_a_refusal_is_everybodys(bench: FakeDslRun):
    units = [unit(number, **SAME, fail="refuse", seconds=0.2) for number in range(3)]
    with pytest.raises(BuildError, match=r"cannot compile this \(3 of 3 units\)"):
        bench.compile(*units)
    assert len(bench.made()) == 1


def test_a_worker_that_dies_has_not_made_it(bench: FakeDslRun):
    units = [unit(number, **SAME, fail="crash") for number in range(3)]
    assert {one.code for one in bench.compile(*units)} == {b"code" * 8}
    assert len(bench.made()) == 2
    assert len(set(bench.made())) == 1


def test_several_variants_at_once(bench: FakeDslRun):
    def variant(first: int) -> set[bytes]:
        made = bench.compile(*(unit(first + n, **SAME, seconds=0.3) for n in range(3)))
        return {one.code for one in made}

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(variant, (10, 20, 30))) == [{b"code" * 8}] * 3
    assert len(bench.made()) == 1


def test_the_log_of_the_run_has_them(tmp_path):
    with shop(tmp_path) as bench:
        wanted = [(unit(n, **SAME, seconds=0.3), BOUND) for n in (1, 2)]
        bench.compiler.outcomes(Kernel(), bench.root, wanted, variant="v")
        first, second = sorted(read_log(bench.run.log).units, key=lambda one: one.cache)
        assert (first.cache, second.cache) == ("hit", "miss")
        assert {one.variant for one in (first, second)} == {"v"}
        assert all(one.image and one.language == "fake" and one.peak > 0 for one in (first, second))
        assert second.seconds >= 0.3
        assert second.unit.startswith("k sm_90a float16 number=")
        with pytest.raises(BuildError):
            bench.compile(unit(3, do="refuse"))
        assert [one.status for one in read_log(bench.run.log).units].count(1) == 1
    with shop(tmp_path) as bench:
        bench.compile(unit(1, **SAME, seconds=0.3))
        (again,) = read_log(bench.run.log).units
        assert (again.cache, again.status, again.peak) == ("hit", 0, 0)

"""Which candidate a call runs, and which are compiled for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbuild.dsl.candidates import closest_target, shipped_candidates
from kbuild.ops.expression import parse_condition
from kbuild.ops.steps import Launch
from kbuild.ops.tuned_tables import TunedRow, TunedTable
from kbuild.ops.unit import ImageTarget
from tests.support.sections import op_of, text_of

CONFIGS = """[
  { BLOCK = 512, when = "N > 256" },
  { BLOCK = 128, num_warps = 4 },
  { BLOCK = 256, num_warps = 8 },
  { BLOCK = 64, archs = ["8.0"] },
]"""
CANDIDATES = op_of(text_of(configs=CONFIGS)).launches[0].candidates
F16 = (("x", "float16"), ("out", "float16"))


def row(index: int, *key: int, **fields) -> TunedRow:
    one = CANDIDATES[index]
    return TunedRow(
        **{
            "kernel": "k",
            "op": "k",
            "launch": 0,
            "dtypes": F16,
            "key": key or (64,),
            "constants": one.constants,
            "options": one.options,
            "microseconds": 1.0,
            "default_microseconds": 2.0,
            **fields,
        }
    )


class TestShipped:
    LAUNCH = Launch(("k",), candidates=CANDIDATES)

    def of(self, *tables, target="sm_90a", **more):
        found = shipped_candidates(
            self.LAUNCH, tables, "k", "k", 0, ImageTarget.parse(target), **more
        )
        return [CANDIDATES.index(replace(one, aligned=False)) for one in found]

    def test_without_tables_the_default_ones(self):
        assert self.of() == [0, 1]

    def test_winners_of_the_arch_as_well(self):
        tables = (TunedTable("NVIDIA H200", "sm_90", (row(2),)),)
        assert self.of(*tables) == [0, 1, 2]
        assert self.of(*tables, target="sm_80") == [0, 1]

    def test_archs_of_a_candidate(self):
        a100 = TunedTable("NVIDIA A100-SXM4-80GB", "sm_80", (row(3),))
        assert self.of(a100, target="sm_80") == [0, 1, 3]
        assert self.of(replace(a100, arch="sm_90")) == [0, 1]

    def test_all_of_them(self):
        assert self.of(keep_all=True) == [0, 1, 2]
        assert self.of(keep_all=True, target="sm_80") == [0, 1, 2, 3]

    @pytest.mark.parametrize("keep_all", [False, True])
    def test_plain_images_are_those_of_the_default_ones(self, keep_all):
        tables = (TunedTable("NVIDIA H200", "sm_90", (row(2),)),)
        target = ImageTarget.parse("sm_90a")
        found = shipped_candidates(self.LAUNCH, tables, "k", "k", 0, target, keep_all=keep_all)
        assert [candidate.aligned for candidate in found] == [False, False, True]

    def test_rows_of_other_launches_and_stale_ones(self):
        rows = (row(2, op="l"), row(2, launch=1), row(2, options=()))
        assert self.of(TunedTable("NVIDIA H200", "sm_90", rows)) == [0, 1]

    def test_a_device_that_runs_code_for_another_arch(self):
        l4 = TunedTable("NVIDIA L4", "sm_89", (row(2),))
        among = tuple(map(ImageTarget.parse, ("sm_80", "sm_90a", "compute_80")))
        assert self.of(l4, target="sm_80", among=among) == [0, 1, 2]
        assert self.of(l4, target="compute_80", among=among) == [0, 1]
        assert self.of(l4, target="sm_90a", among=among) == [0, 1]

    def test_a_device_that_only_has_ptx(self):
        table = TunedTable("NVIDIA B200", "sm_100", (row(2),))
        among = tuple(map(ImageTarget.parse, ("sm_80", "compute_80")))
        assert self.of(table, target="compute_80", among=among) == [0, 1, 2]


def test_ptx_is_for_devices_without_code_of_their_own():
    """A launch for Hopper alone needs no PTX where Hopper has its own code."""
    targets = tuple(map(ImageTarget.parse, ("sm_80", "sm_90a", "compute_80")))

    def count(when: str, among=targets) -> int:
        launch = Launch(("k",), candidates=CANDIDATES[1:2], when=parse_condition(when))
        ptx = ImageTarget.parse("compute_80")
        return len(shipped_candidates(launch, (), "k", "k", 0, ptx, among=among))

    assert count("capability() // 10 == 9 and N > 1") == 0
    assert count("capability() // 10 == 9", targets[:1] + targets[2:]) == 1
    assert count("capability() >= 90") == count("N > 1 or capability() == 90") == 1


class TestAligned:
    """A candidate with the aligned image alone is conditional."""

    ALL = tuple(replace(one, aligned=at in {0, 1}) for at, one in enumerate(CANDIDATES))

    def test_the_default_ones_go_on_past_it(self):
        launch = Launch(("k",), candidates=self.ALL)
        found = shipped_candidates(launch, (), "k", "k", 0, ImageTarget.parse("sm_90a"))
        assert found == self.ALL[:3]


def test_default_candidates_go_on_past_those_that_some_device_cannot_run():
    launch = Launch(("k",), candidates=CANDIDATES)
    found = shipped_candidates(
        launch, (), "k", "k", 0, ImageTarget.parse("sm_90a"), without_memory=[CANDIDATES[1]]
    )
    assert found == CANDIDATES[:3]


@pytest.mark.parametrize(
    ("arch", "targets", "expected"),
    [
        ("sm_90", "sm_80 sm_90 sm_90a compute_80", "sm_90a"),
        ("sm_89", "sm_80 sm_86 compute_80", "sm_86"),
        ("sm_86", "sm_80 sm_89", "sm_80"),
        ("sm_103", "sm_100a compute_80", "compute_80"),
        ("sm_103", "sm_100f compute_80", "sm_100f"),
        ("sm_103", "sm_100 sm_100f", "sm_100f"),
        ("sm_120", "sm_100f sm_90a", None),
        ("sm_75", "sm_80 compute_80", None),
        ("sm_90", "compute_80 compute_90", "compute_90"),
        ("gfx942", "gfx90a gfx942", "gfx942"),
        ("gfx1100", "gfx90a gfx942", None),
        ("gfx942", "sm_80 compute_80", None),
        ("sm_90", "gfx942", None),
    ],
)
def test_what_a_device_runs(arch, targets, expected):
    found = closest_target(arch, [ImageTarget.parse(text) for text in targets.split()])
    assert (str(found) if found else None) == expected

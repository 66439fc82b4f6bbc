"""How long units are expected to take in all."""

from __future__ import annotations

from kbuild.plugins.cluster.assignments import WorkUnit
from kbuild.plugins.cluster.fill import RemainingTime


def test_the_time_that_is_left_follows_from_what_is_done() -> None:
    units = [WorkUnit(str(number), "unit", seconds=10.0) for number in range(7)]
    now = iter((50.0, 170.0, 230.0))  # it is not asked too early
    remaining = RemainingTime(units, lambda: next(now))
    texts = [remaining.text_after(unit) for unit in units[:4]]
    assert texts == ["", "", "about 4 min left", "about 3 min left"]  # from a third on
    alone = RemainingTime(units[:2], lambda: 0.0)
    assert [alone.text_after(unit) for unit in units[:2]] == ["", ""]

"""Random calls: the candidate that runs is the one that the tables say."""

from __future__ import annotations

import math
import random

import pytest

from tests.support.launcher.rich import TABLES, rich

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]
NAMES = {0: "Fake 90", 8: "Fake other"}
CALLS = 600


def expected(candidates, device, dtype, n, rows):
    """BLOCK of the candidate, worked out in Python."""
    own = [table for table in TABLES if table.device == NAMES[device]]
    found = [row for table in own for row in table.rows if dict(row.dtypes)["x"] == dtype]
    found = found or [r for table in TABLES for r in table.rows if dict(r.dtypes)["x"] == dtype]
    best = min(found, key=lambda row: (row.key != (n, rows), distance(row.key, (n, rows))))
    values = {"N": n, "rows": rows}

    def runs(block):
        one = next(c for c in candidates if dict(c.constants)["BLOCK"] == block)
        return one.when is None or one.when.evaluate(values)

    order = [dict(best.constants)["BLOCK"], *(dict(c.constants)["BLOCK"] for c in candidates)]
    return next(block for block in order if runs(block))


def distance(one, other):
    return sum(abs(math.log2(1 + a) - math.log2(1 + b)) for a, b in zip(one, other, strict=True))


def test_random_calls(ops, driver):
    chance = random.Random(7)  # noqa: S311 - the same calls each time
    candidates = next(op for op in rich() if op.spec.name == "norm").launches[0].launch.candidates
    sizes = [33, 40, 50, 63, 64, 65, 100, 128, 200, 255, 256]
    for _ in range(CALLS):
        dtype = chance.choice(["float16", "float32"])
        n, rows = chance.choice(sizes), chance.choice([1, 2, 3, 20, 31, 32, 33, 500, 1024, 3000])
        device = chance.choice([0, 8])
        x = torch.zeros(rows, n, dtype=getattr(torch, dtype))
        w = torch.zeros(n, dtype=x.dtype)
        driver.place(x, device)
        driver.place(w, device)
        ops.norm(x, w)
        driver.library.fake_forget()
        (record,) = driver.launches()
        block = expected(candidates, device, dtype, n, rows)
        assert f"BLOCK={block} " in record.image, (device, dtype, n, rows)

"""The size check: bytes against a limit, and the number of files."""

from __future__ import annotations

from collections.abc import Callable

from kbuild.checks.base import Output
from kbuild.checks.size import SizeCheck

Make = Callable[..., Output]


def test_facts_name_the_largest_first(noarch: Make) -> None:
    facts = SizeCheck().facts(noarch({"a.bin": b"1", "b/c.bin": b"0" * 5000}))
    assert next(iter(facts["files"])) == "b/c.bin"
    assert facts["files"]["b/c.bin"] == 5000
    assert facts["total"] == sum(facts["files"].values())

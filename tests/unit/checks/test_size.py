"""The size check: bytes against a limit, and the number of files."""

from __future__ import annotations

from collections.abc import Callable

from kbuild.checks.base import CheckLimits, Output
from kbuild.checks.size import SizeCheck

Make = Callable[..., Output]


def said(output: Output) -> list[tuple[str, str, str]]:
    return [(f.severity, f.where, f.what) for f in SizeCheck().run(output)]


def test_the_limit_itself_is_allowed(noarch: Make) -> None:
    output = noarch({"weights.bin": b"0" * 1000})
    total = SizeCheck().facts(output)["total"]
    for limit, faults in ((total, 0), (total - 1, 1)):
        limited = Output(output.root, output.variant, asked=CheckLimits(max_size=limit))
        assert len(said(limited)) == faults


def test_many_files(noarch: Make) -> None:
    output = noarch({f"data/{n}.txt": "" for n in range(200)})
    ((severity, where, what),) = said(output)
    assert (severity, where) == ("warning", ".")
    assert what.startswith("203 files")
    for n in range(3):
        (output.root / f"data/{n}.txt").unlink()
    assert said(output) == []


def test_facts_name_the_largest_first(noarch: Make) -> None:
    facts = SizeCheck().facts(noarch({"a.bin": b"1", "b/c.bin": b"0" * 5000}))
    assert next(iter(facts["files"])) == "b/c.bin"
    assert facts["files"]["b/c.bin"] == 5000
    assert facts["total"] == sum(facts["files"].values())

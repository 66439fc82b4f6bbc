"""The size check: bytes against a limit, and the number of files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbuild.checks.base import CheckLimits, Output
from kbuild.checks.size import SizeCheck, size_text

Make = Callable[..., Output]


def said(output: Output) -> list[tuple[str, str, str]]:
    return [(f.severity, f.where, f.what) for f in SizeCheck().run(output)]


def test_without_a_limit_any_size_will_do(noarch: Make) -> None:
    assert said(noarch({"weights.bin": b"0" * 100_000})) == []


def test_too_large(noarch: Make) -> None:
    output = noarch({"weights.bin": b"0" * 102_400}, asked=CheckLimits(max_size=50 * 1024))
    ((severity, where, what),) = said(output)
    assert (severity, where) == ("error", "weights.bin")
    assert what.startswith("100 KB of 10")
    assert what.endswith("the limit is 50 KB")


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


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KB"),
        (20 << 20, "20 MB"),
        (3 << 40, "3.0 TB"),
    ],
)
def test_size_text(size: int, text: str) -> None:
    assert size_text(size) == text

"""What `kbuild tune` says of calls that it did not measure."""

from __future__ import annotations

from kbuild.cli.tune import summarize_reasons


def test_many_calls_have_a_line_for_each_reason():
    calls = [(f"mm M={m}", "no candidate runs") for m in range(5)]
    assert list(summarize_reasons([*calls, ("mm M=7", "it hangs")])) == [
        "mm M=0 and 4 more: no candidate runs",
        "mm M=7: it hangs",
    ]

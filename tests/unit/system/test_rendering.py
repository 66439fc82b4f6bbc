"""Whatever a project's names and flags hold, CMake reads the same text back."""

from __future__ import annotations

import re
import shlex

from hypothesis import given
from hypothesis import strategies as st

from kbuild.system import rendering


def unescaped(text: str) -> str:
    """What CMake makes of the inside of a quoted argument."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


@given(st.text(alphabet=st.characters(blacklist_characters=";\0\n\r")))
def test_arguments_round_trip(text):
    quoted = rendering.argument(text)
    inside = quoted[1:-1] if quoted.startswith('"') else quoted
    assert unescaped(inside) == text
    assert quoted != ""


@given(st.lists(st.text(alphabet=st.characters(blacklist_characters=";\0\n\r$"), min_size=1)))
def test_command_lines_round_trip(flags):
    text = rendering.in_genex(rendering.command_line(flags))
    assert ">" not in text.replace("$<ANGLE-R>", "")
    assert shlex.split(unescaped(text.replace("$<ANGLE-R>", ">"))) == flags

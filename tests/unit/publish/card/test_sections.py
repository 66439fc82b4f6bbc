"""Docstrings as Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kbuild.publish.card.sections import docstring_markdown, escape_markdown

GOOGLE = """\
Clip at zero.

Longer words.

Args:
    x: A tensor,
        of any shape.
    out (Tensor, optional): Where to
        write.
    *rest: More.

    gone: TODO say what it is.

Returns:
    A tensor.

Raises:
    ValueError: no tensor.

Example:
    >>> relu(x)
    tensor([0.])

    Then more.
"""
NUMPY = """\
Clip at zero.

Parameters
----------
x : Tensor
    A tensor.
y, z
    Others.

Returns
-------
Tensor
    The result.
"""


def test_googles_style():
    assert docstring_markdown(GOOGLE) == (
        "Clip at zero.\n\nLonger words.\n\n"
        "**Arguments**\n\n- `x`: A tensor, of any shape.\n"
        "- `out` (Tensor, optional): Where to write.\n- `*rest`: More.\n\n"
        "**Returns**\n\nA tensor.\n\n"
        "**Raises**\n\n- `ValueError`: no tensor.\n\n"
        "**Example**\n\n```python\n>>> relu(x)\ntensor([0.])\n```\n\nThen more."
    )


def test_numpys_style():
    assert docstring_markdown(NUMPY) == (
        "Clip at zero.\n\n**Arguments**\n\n- `x` (Tensor): A tensor.\n- `y, z`: Others.\n\n"
        "**Returns**\n\nTensor\nThe result."
    )


@pytest.mark.parametrize(
    ("doc", "text"),
    [
        ("", ""),
        ("TODO: write this.", ""),
        ("Do it.\n\nTODO(me): faster.\nOr not.\n\nEnd.", "Do it.\n\nEnd."),
        ("Do it.\n\nNote: plain text.", "Do it.\n\nNote: plain text."),
        ("Do it.\n\nArgs:\n", "Do it."),
        ("Do:\n\n    code(1)\n", "Do:\n\n```python\ncode(1)\n```"),
        ("Args:\n    a line without a name", "**Arguments**\n\n- a line without a name"),
        ("- one\n- two", "- one\n- two"),
    ],
)
def test_other_docstrings(doc, text):
    assert docstring_markdown(doc) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b> c", "a &lt;b> c"),
        ("vector<float> `vector<float>`", "vector&lt;float> `vector<float>`"),
        ("``a_b`` _x_ a_b 2*x*y", "``a_b`` \\_x\\_ a_b 2\\*x\\*y"),
        ("``<a> `<b>`", "&#96;&#96;&lt;a> `<b>`"),
        ("`a\n* b` <c>", "&#96;a\n* b&#96; &lt;c>"),
        ("a & b &amp; &#1;", "a & b &amp;amp; &amp;#1;"),
    ],
)
def test_what_markdown_would_take_for_its_own(text, shown):
    assert escape_markdown(text) == shown


@given(st.text(st.sampled_from("ab_*<>& `|\n"), max_size=30))
def test_no_html_gets_in(text):
    tokens = MarkdownIt("commonmark").parse(docstring_markdown(text))
    inner = [child for token in tokens for child in token.children or []]
    assert not [token for token in (*tokens, *inner) if token.type.startswith("html")]

"""Templates filled with facts, filled cards filled again, and cards on the disk."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kbuild.publish.card import CardError, card_text, write_card
from kbuild.publish.card.markdown import split_blocks
from kbuild.publish.card.sections import SECTIONS

ROOT = Path(__file__).parents[4]
INIT = (ROOT / "templates" / "init" / "every" / "CARD.md").read_text("utf-8")
SEAL = re.compile(r"<!-- kbuild:filled \w+ -->\r?\n\Z")
FRONT = "---\nlibrary_name: kernels\nlicense: apache-2.0\ntags:\n  - kernel\n---\n"
# Every name and construct that the reference tool's cards use.
FOREIGN = """\
---
library_name: kernels
{% if license %}license: {{ license }}
{% endif %}---

Card of {{ repo_id }}.
{% if functions %}

```python
kernel = get_kernel("{{ repo_id }}", version={{ version }})
{{ functions[0] }} = kernel.{{ functions[0] }}
```
{% else %}

No example.
{% endif %}
{% for func in functions %}
- `{{ func }}`
{% endfor %}
{% for layer in layers %}
- `{{ layer }}`
{% endfor %}
{% if has_benchmark %}

Run `kernels benchmark {{ repo_id }} --version {{ version }}`.
{% endif %}
{% if upstream %}

From {{ upstream }}.
{% endif %}
{% if source %}

At {{ source }}.
{% endif %}
"""


def body(text: str) -> str:
    """A filled card without its front matter and last line."""
    return SEAL.sub("", text).removeprefix(FRONT)


def part(name: str, inside: str = "\n") -> str:
    return f"<!-- kbuild:{name} -->{inside}<!-- /kbuild:{name} -->"


class TestTemplates:
    def test_cards_of_the_reference_tool(self, facts):
        text = card_text(FOREIGN, facts)
        assert body(text).splitlines() == [
            "",
            "Card of org/relu.",
            "",
            "```python",
            'kernel = get_kernel("org/relu", version=1)',
            "relu = kernel.relu",
            "```",
            "- `relu`",
            "- `ops`",
            "- `ReLU`",
            "",
            "Run `kernels benchmark org/relu --version 1`.",
            "",
            "From https://example.org/upstream.",
            "",
            "At https://example.org/source.",
        ]

    def test_unknown_names_are_refused_with_the_known_ones(self, facts):
        with pytest.raises(CardError, match="nope") as caught:
            card_text("{{ nope }}", facts)
        assert "repo_id" in caught.value.hint

    def test_template_errors_have_a_line(self, facts):
        with pytest.raises(CardError, match=r"CARD\.md:2"):
            card_text("a\n{% for %}", facts)

    @pytest.mark.parametrize("word", ["TODO", "[TODO]", "FIXME", "TBD"])
    def test_what_is_still_to_be_done_is_refused(self, facts, word):
        with pytest.raises(CardError, match=r"CARD\.md:3: .* \(line 3, 4\)"):
            card_text(f"fine\n{{# {word.lower()} #}}\n{word}: this\n<!-- {word} -->\n", facts)


class TestParts:
    def test_what_they_say(self, facts):
        text = card_text(INIT, facts)
        for line in (
            'kernel = get_kernel("org/relu", version=1)',
            "kernel.relu(x)",
            "relu(x) -> Tensor",
            "Clip at zero.",
            "### `ReLU`",
            "Backward: yes. `torch.compile`: no.",
            "| `torch213-cxx11-cpu-x86_64-linux` | CPU | 2.13 | x86_64-linux |  | 1.2&nbsp;MB |",
            "| large | 50 µs ± 1 µs | 200 µs | 4.00\N{MULTIPLICATION SIGN} |",
            "Licence: Apache-2.0.",
            "The kernel comes from <https://example.org/upstream>.",
        ):
            assert f"\n{line}\n" in text, line

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("a\n<!-- kbuild:usage -->\n", r"CARD\.md:2: .*does not end"),
            ("a\n\n<!-- /kbuild:usage -->\n", r"CARD\.md:3: .*without having begun"),
            ("<!-- kbuild:usage -->" + part("layers"), r"CARD\.md:1: .*`usage` does not end"),
        ],
    )
    def test_marks_without_their_other_half(self, facts, text, words):
        with pytest.raises(CardError, match=words):
            card_text(text, facts)


class TestNotice:
    def test_dirty_and_faulty_variants_are_named(self, facts):
        first, second = facts.variants
        told = replace(
            facts, variants=(replace(first, dirty=True), replace(second, fault="it is broken"))
        )
        text = card_text(INIT, told)
        assert f"The source of `{first.name}` differed from the commit" in text
        assert f"> - `{second.name}`: it is broken\n" in text

    def test_overruled_checks_are_named_with_their_reasons(self, facts):
        first, second = facts.variants
        one = replace(first, overruled=(("ops", "made | at import"),), dirty=True)
        two = replace(second, overruled=(("ops", "made | at import"), ("load", "slow")))
        text = card_text(INIT, replace(facts, variants=(one, two)))
        assert "> **Checks are overruled.** The author publishes" in text
        assert "> - `ops` in all variants: made" in text
        assert f"> - `load` in `{second.name}`: slow\n" in text

    def test_variants_that_were_not_run(self, facts):
        first, second = facts.variants
        text = card_text(INIT, replace(facts, variants=(first, replace(second, not_run=True))))
        assert "> **Built on another processor, and not run.** When" in text
        assert f"When `{second.name}` was built, the files were checked, but" in text
        both = tuple(replace(found, not_run=True, dirty=True) for found in facts.variants)
        text = card_text(INIT, replace(facts, variants=both))
        assert ">\n> **Built on another processor, and not run.** When all variants were" in text

    def test_it_is_said_where_the_template_has_no_place_for_it(self, facts):
        dirty = replace(facts, variants=(replace(facts.variants[0], dirty=True),))
        text = card_text("---\na: b\n---\n# Title\n\nText.\n", dirty)
        after = text.partition("# Title\n\n")[2]
        assert after.startswith("<!-- kbuild:notice ")
        assert after.partition("<!-- /kbuild:notice -->")[2].startswith("\n\nText.\n")
        assert card_text(text, dirty) == text
        assert "Not built from a commit" not in card_text(text, facts)
        assert "Not built from a commit" in card_text("No title.\n", dirty)


class TestAgain:
    def test_new_facts_replace_old_ones(self, facts, other_facts):
        text = card_text(card_text(INIT, facts), other_facts)
        assert "version=2" in text
        assert "version=1" not in text
        assert "relu(x, y)" in text
        assert text == card_text(INIT, other_facts)

    def test_edited_parts_stay(self, facts, other_facts):
        text = card_text(INIT, facts)
        edited = text.replace("Clip at zero.", "Clip at zero, in place.")
        again = card_text(edited, other_facts)
        assert "Clip at zero, in place." in again
        assert "relu(x) -> Tensor" in again
        assert "version=2" in again


MARKS = re.compile(r"<!--|-->|\{[{%#]|\b(?:TODO|FIXME|TBD)\b|\A\ufeff?---")
LETTERS = st.characters(codec="utf-8") | st.sampled_from(["\r\n", "\n", "# ", "<", "|", "--", "`"])
PROSE = (
    st.lists(LETTERS, max_size=60)
    .map("".join)
    .filter(lambda text: not MARKS.search(text) and "---" not in text)
)
NO_RESET = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@NO_RESET
@example([], "\r")
@example([("", SECTIONS[0])], "a\r\nb")
@given(st.lists(st.tuples(PROSE, st.sampled_from(SECTIONS)), max_size=4), PROSE)
def test_hand_written_text_survives_byte_for_byte(facts, other_facts, pieces, last):
    template = FRONT + "".join(text + part(name) for text, name in pieces) + last
    once = card_text(template, facts)
    twice = card_text(once, other_facts)
    for filled in (once, twice):
        found = [found for found in split_blocks(body(filled)) if isinstance(found, str)]
        assert found[:-1] == [text for text, _ in pieces]
        assert found[-1].removeprefix(last) in {"", "\n"}
    assert card_text(twice, facts) == once


TEMPLATE = "# {{ name }}\n\n<!-- kbuild:usage -->\n<!-- /kbuild:usage -->\n"


@pytest.fixture
def write(tmp_path):
    """Fills the card in `tmp_path`."""

    def put(facts, template=TEMPLATE, **how):
        make = partial(card_text, facts=facts)
        return write_card(make, template, tmp_path / "CARD.md", **how)

    return put


def test_a_card(write, facts, tmp_path):
    written = write(facts)
    assert (written.path, written.changed, written.edited) == (tmp_path / "CARD.md", True, False)
    assert (tmp_path / "CARD.md").read_text() == card_text(TEMPLATE, facts)


def test_an_edited_card_keeps_its_text(write, facts, other_facts, tmp_path):
    write(facts)
    card = tmp_path / "CARD.md"
    card.write_text(card.read_text().replace("# relu", "# My title"))
    for template in (TEMPLATE, "# Another\n"):
        written = write(other_facts, template)
        assert written.edited
        assert "# My title\n" in card.read_text()
        assert "version=2" in card.read_text()
    assert not write(other_facts, force=True).edited
    assert "# My title" not in card.read_text()


def test_a_faulty_card_leaves_the_old_one(write, facts, tmp_path):
    write(facts)
    before = (tmp_path / "CARD.md").read_bytes()
    with pytest.raises(CardError):
        write(facts, "TODO\n")
    assert (tmp_path / "CARD.md").read_bytes() == before

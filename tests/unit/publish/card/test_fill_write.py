"""Cards on the disk: nothing that somebody wrote is lost."""

from __future__ import annotations

from functools import partial

import pytest

from kbuild.publish.card import CardError, card_text, write_card

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

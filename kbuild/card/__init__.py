"""A kernel's card: `CARD.md` of the project filled with facts; the Hub shows it as the README."""

from kbuild.card.fill import Card, card_text, make_card
from kbuild.card.model import CardError, CardFacts
from kbuild.card.write import CARD, CHARTS, card_files, write_card

__all__ = [
    "CARD",
    "CHARTS",
    "Card",
    "CardError",
    "CardFacts",
    "card_files",
    "card_text",
    "make_card",
    "write_card",
]

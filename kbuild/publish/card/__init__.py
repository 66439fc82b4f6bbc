"""A kernel's card: `CARD.md` of the project filled with facts; the Hub shows it as the README."""

from kbuild.publish.card.fill import (
    CARD,
    CHARTS,
    Card,
    card_files,
    card_text,
    make_card,
    write_card,
)
from kbuild.publish.card.model import CardError, CardFacts

__all__ = [
    "CARD", "CHARTS", "Card", "CardError", "CardFacts", "card_files", "card_text", "make_card",
    "write_card",
]  # fmt: skip

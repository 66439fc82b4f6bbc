"""A kernel's card: `CARD.md` of the project filled with facts; the Hub shows it as the README."""

from kbuild.publish.card.fill import CARD, card_text, write_card
from kbuild.publish.card.model import CardError, CardFacts

__all__ = ["CARD", "CardError", "CardFacts", "card_text", "write_card"]

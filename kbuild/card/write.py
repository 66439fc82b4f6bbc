"""A filled card on the disk: `CARD.md` and its charts beside the variants.

A card that was edited after it was filled is its own template from then on: kbuild fills its parts
and leaves the rest. A file that kbuild did not write is never replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbuild.card.blocks import unsealed
from kbuild.card.fill import Card
from kbuild.card.model import CardError
from kbuild.errors import FileConflictError
from kbuild.fileset import replace_atomically

CARD = "CARD.md"
CHARTS = "CARD-*.svg"
_LIMIT = 4 << 20
_OURS = b"<!-- made by kbuild -->"


@dataclass(frozen=True)
class Written:
    """What became of a card."""

    path: Path
    changed: bool
    edited: bool
    """True when the card was edited by hand, and is filled as it is."""


def read_card(path: Path) -> str:
    """The text with its line ends as they are.

    Raises:
        CardError: it is no text, or too long.
    """
    if path.stat().st_size > _LIMIT:
        raise CardError(f"`{path}` has more than {_LIMIT >> 20} MB", hint="cards are texts to read")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CardError(f"`{path}` is not UTF-8", hint="save it as UTF-8") from error


def write_card(
    make: Callable[[str], Card], template: str, target: Path, *, force: bool = False
) -> Written:
    """Fill a card and put it into place; unchanged files are left alone.

    Args:
        make: fills a template.
        template: the project's.
        target: the file, which may be there from before; its charts go beside it.
        force: replace the file whatever it is.

    Raises:
        CardError: see `card_text`.
        FileConflictError: the target is something that kbuild did not write.
    """
    edited = False if force else _is_edited(target)
    card = make(read_card(target) if edited else template)
    changed = _put(target, card.text.encode())
    for name, svg in card.charts.items():
        changed |= _put(target.parent / name, svg.encode())
    _remove_others(target.parent, card)
    return Written(target, changed, edited)


def is_current(card: Card, target: Path) -> bool:
    """True when the file and its charts are what was filled."""
    texts = {target: card.text, **{target.parent / n: svg for n, svg in card.charts.items()}}
    return all(path.is_file() and path.read_bytes() == t.encode() for path, t in texts.items())


def card_files(folder: Path) -> tuple[Path, ...]:
    """The card and its charts in a folder of variants: what belongs on the main branch."""
    card = folder / CARD
    return (card, *sorted(filter(_is_our_chart, folder.glob(CHARTS)))) if card.is_file() else ()


def _is_edited(target: Path) -> bool:
    if not target.exists():
        return False
    known = unsealed(read_card(target)) if target.is_file() else None
    if known is None:
        message = f"`{target}` is in the way: kbuild did not write it"
        raise FileConflictError(message, hint="move it away; the card's template is CARD.md")
    return known[1]


def _put(target: Path, data: bytes) -> bool:
    if target.is_file() and target.read_bytes() == data:
        return False
    replace_atomically(target, data, durable=True)
    return True


def _remove_others(folder: Path, card: Card) -> None:
    """Charts of results that are no longer there."""
    for path in filter(_is_our_chart, folder.glob(CHARTS)):
        if path.name not in card.charts:
            path.unlink()


def _is_our_chart(path: Path) -> bool:
    return path.is_file() and _OURS in path.read_bytes()

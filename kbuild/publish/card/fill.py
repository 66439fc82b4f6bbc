"""Fills a card from a template and facts, and writes it beside the variants.

A template is the project's `CARD.md`: text, jinja2, and parts between marks (see `markdown`). A
card that was edited after it was filled is its own template. A file that kbuild did not write
is never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kbuild.publish.card.markdown import (
    CardBlock,
    add_digest_line,
    fill_blocks,
    make_block,
    remove_digest_line,
    split_blocks,
    with_front_matter,
)
from kbuild.publish.card.model import CardError, CardFacts
from kbuild.publish.card.sections import SECTIONS, UNFINISHED, section_text
from kbuild.system.errors import FileConflictError
from kbuild.system.files import replace_atomically

_JINJA = re.compile(r"\{[{%#]")
_NOTICE = "notice"
_HEADING = re.compile(r"^# .*$", re.MULTILINE)


def card_text(template: str, facts: CardFacts) -> str:
    """The card's text.

    Raises:
        CardError: the template is wrong or uses an unknown name, or something is still to be done.
    """
    newline = "\r\n" if template.partition("\n")[0].endswith("\r") else "\n"  # of the first line
    list(split_blocks(template))  # faults have a line there
    text, edited = remove_digest_line(template) or (_render(template, facts, newline), False)
    text = with_front_matter(text, facts.license, newline)
    text = fill_blocks(text, lambda name: _known_section(name, facts), newline)
    text = _add_notice(text, facts, newline)
    _reject_unfinished(text, template)
    return add_digest_line(text, newline, edited=edited)


def _render(template: str, facts: CardFacts, newline: str) -> str:
    """The template with jinja2's parts replaced; untouched when it has none."""
    if not _JINJA.search(template):
        return template
    from jinja2 import Environment, StrictUndefined, TemplateError

    environment = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, from the project's own files
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\r\n" if newline == "\r\n" else "\n",
    )
    # What a template may use; the names of other tools' templates are among them.
    names = {
        "repo_id": facts.repo_id,
        "name": facts.name,
        "version": facts.version,
        "license": facts.license.lower(),
        "functions": [name for name in facts.public_api.names if name != "layers"],
        "layers": [layer.name for layer in facts.public_api.layers],
        "variants": [variant.name for variant in facts.variants],
        "has_benchmark": facts.has_benchmark,
        "upstream": facts.upstream,
        "source": facts.source,
        "summary": facts.public_api.summary,
    }
    try:
        return environment.from_string(template).render(names)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        place = f"CARD.md:{line}" if line else "CARD.md"
        hint = f"a card may use {', '.join(sorted(names))}"
        raise CardError(f"{place}: {error}", hint=hint) from error


def _known_section(name: str, facts: CardFacts) -> str:
    if name not in SECTIONS:
        hint = f"the parts of a card are {', '.join(SECTIONS)}"
        raise CardError(f"CARD.md: there is no part `{name}`", hint=hint)
    return section_text(name, facts)


def _add_notice(text: str, facts: CardFacts, newline: str) -> str:
    """Put the notice below the title when the template has no place for it."""
    notice = section_text(_NOTICE, facts)
    if not notice or any(
        isinstance(part, CardBlock) and part.name == _NOTICE for part in split_blocks(text)
    ):
        return text
    block = str(make_block(_NOTICE, notice, newline))
    heading = _HEADING.search(text)
    if heading is None:
        return text + newline * 2 + block + newline
    # In a card with Windows line ends, `.` has matched the carriage return as well.
    at = heading.end() - heading[0].endswith("\r")
    return f"{text[:at]}{newline}{newline}{block}{text[at:]}"


def _reject_unfinished(text: str, template: str) -> None:
    if UNFINISHED.search(text) is None:
        return
    lines = _unfinished_lines(template) or _unfinished_lines(text)
    listed = ", ".join(str(line) for line in lines)
    hint = "write those parts of CARD.md, or take them out"
    raise CardError(f"CARD.md:{lines[0]}: something is still to be done (line {listed})", hint=hint)


def _unfinished_lines(text: str) -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if UNFINISHED.search(line)]


CARD = "CARD.md"
_MAX_CARD_SIZE = 4 << 20


@dataclass(frozen=True)
class WrittenCard:
    """The result of filling a card."""

    path: Path
    changed: bool
    edited: bool
    """True when the card was edited by hand, and is filled as it is."""


def read_card(path: Path) -> str:
    """The text with its line ends as they are.

    Raises:
        CardError: it is not text, or too long.
    """
    if path.stat().st_size > _MAX_CARD_SIZE:
        raise CardError(
            f"`{path}` has more than {_MAX_CARD_SIZE >> 20} MB", hint="a card is a text file"
        )
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CardError(f"`{path}` is not UTF-8", hint="save it as UTF-8") from error


def write_card(
    make: Callable[[str], str], template: str, target: Path, *, force: bool = False
) -> WrittenCard:
    """Fill a card and put it into place; unchanged files are left alone.

    Args:
        make: fills a template.
        template: the project's.
        target: the file, which may be there from before.
        force: replace the file whatever it is.

    Raises:
        CardError: see `card_text`.
        FileConflictError: the target is something that kbuild did not write.
    """
    edited = False if force else _is_edited(target)
    card = make(read_card(target) if edited else template).encode()
    changed = not target.is_file() or target.read_bytes() != card
    if changed:
        replace_atomically(target, card, durable=True)
    return WrittenCard(target, changed, edited)


def _is_edited(target: Path) -> bool:
    if not target.exists():
        return False
    known = remove_digest_line(read_card(target)) if target.is_file() else None
    if known is None:
        message = f"`{target}` is in the way: kbuild did not write it"
        raise FileConflictError(message, hint="move it away; the card's template is CARD.md")
    return known[1]

"""From a template and facts to a card.

A template is the project's `CARD.md`: text, jinja2 with the names in `names_of`, and parts between
marks (see `blocks`). A card that was filled before is a template as well: its text is taken as it
is, and its parts are filled anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.card.blocks import Block, block_of, fill_blocks, sealed, split, unsealed
from kbuild.card.chart import chart_svg
from kbuild.card.docstring import UNFINISHED
from kbuild.card.frontmatter import with_front_matter
from kbuild.card.model import CardError, CardFacts
from kbuild.card.sections import SECTIONS, section_text
from kbuild.surface.model import LAYERS

_JINJA = re.compile(r"\{[{%#]")
_NOTICE = "notice"
_HEADING = re.compile(r"^# .*$", re.MULTILINE)


@dataclass(frozen=True)
class Card:
    """A card with its pictures."""

    text: str
    charts: Mapping[str, str]
    """SVG by file name; the text refers to them by that name."""


def make_card(template: str, facts: CardFacts) -> Card:
    """The card and its charts; see `card_text`."""
    charts = {run.chart: chart_svg(run, facts.name) for run in facts.runs if run.timings}
    return Card(card_text(template, facts), charts)


def card_text(template: str, facts: CardFacts) -> str:
    """The card's text.

    Args:
        template: the text of `CARD.md`, or of a card that was filled before.
        facts: what is told.

    Raises:
        CardError: the template is wrong or uses an unknown name, or something is still to be done.
    """
    newline = "\r\n" if "\r\n" in template else "\n"
    list(split(template))  # faults have a line there
    filled_before = unsealed(template)
    text, edited = filled_before or (_rendered(template, facts, newline), False)
    text = with_front_matter(text, facts.license, newline)
    text = fill_blocks(text, lambda name: _section(name, facts), newline)
    text = _with_notice(text, facts, newline)
    _refuse_unfinished(text, template)
    return sealed(text, newline, edited=edited)


def names_of(facts: CardFacts) -> dict[str, Any]:
    """What a template may use; the names of other tools' templates are among them."""
    surface = facts.surface
    return {
        "repo_id": facts.repo_id,
        "name": facts.name,
        "version": facts.version,
        "license": facts.license.lower(),
        "functions": [name for name in surface.names if name != LAYERS],
        "layers": [layer.name for layer in surface.layers],
        "variants": [variant.name for variant in facts.variants],
        "has_benchmark": facts.has_benchmark,
        "upstream": facts.upstream,
        "source": facts.source,
        "summary": surface.summary,
    }


def _rendered(template: str, facts: CardFacts, newline: str) -> str:
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
    names = names_of(facts)
    try:
        return environment.from_string(template).render(names)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        place = f"CARD.md:{line}" if line else "CARD.md"
        hint = f"a card may use {', '.join(sorted(names))}"
        raise CardError(f"{place}: {error}", hint=hint) from error


def _section(name: str, facts: CardFacts) -> str:
    if name not in SECTIONS:
        hint = f"the parts of a card are {', '.join(SECTIONS)}"
        raise CardError(f"CARD.md: there is no part `{name}`", hint=hint)
    return section_text(name, facts)


def _with_notice(text: str, facts: CardFacts, newline: str) -> str:
    """What readers must know is said below the title when the template has no place for it."""
    notice = section_text(_NOTICE, facts)
    if not notice or any(isinstance(part, Block) and part.name == _NOTICE for part in split(text)):
        return text
    block = str(block_of(_NOTICE, notice, newline))
    heading = _HEADING.search(text)
    if heading is None:
        return text + newline * 2 + block + newline
    at = heading.end() - heading[0].endswith("\r")
    return f"{text[:at]}{newline}{newline}{block}{text[at:]}"


def _refuse_unfinished(text: str, template: str) -> None:
    if UNFINISHED.search(text) is None:
        return
    said = _unfinished(template) or _unfinished(text)
    listed = ", ".join(str(line) for line in said)
    hint = "write those parts of CARD.md, or take them out"
    raise CardError(f"CARD.md:{said[0]}: something is still to be done (line {listed})", hint=hint)


def _unfinished(text: str) -> list[int]:
    return [n for n, line in enumerate(text.splitlines(), 1) if UNFINISHED.search(line)]

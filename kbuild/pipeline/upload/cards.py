"""The card of an upload: filled anew for where it goes, or taken as somebody else filled it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kbuild.card import CARD, CardError, card_files
from kbuild.card.blocks import unsealed
from kbuild.card.docstring import UNFINISHED
from kbuild.card.write import read_card
from kbuild.errors import KbuildError
from kbuild.hub.layout import README
from kbuild.hub.notice import with_notice
from kbuild.hub.reasons import Reason
from kbuild.hub.target import Target
from kbuild.pipeline.card import Publication, filled
from kbuild.project import Project

_HINT = "write those parts of CARD.md, or take them out"
Shown = dict[str, bytes]
"""Contents by path on `main`."""


def card_of(
    build: Path,
    project: Project | None,
    target: Target,
    *,
    faults: Mapping[str, str] | None = None,
    dirty: Sequence[str] = (),
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Shown, tuple[Reason, ...]]:
    """The card with what has to be said of some variants, and why it may not be published.

    Args:
        build: the folder with the variants, and perhaps a card.
        project: whose card is filled; None takes what lies beside the variants.
        target: where it is shown.
        faults: variants that break a promise, with words.
        dirty: variants whose source is in no commit.
        overruled: reasons by check that was overruled, by variant.
    """
    notice = partial(
        with_notice, dirty=dirty, noncompliant=tuple(faults or {}), overruled=overruled
    )
    try:
        return _shown(build, project, target, faults or {}, notice), ()
    except KbuildError as error:
        return {}, (Reason("card", error.message, error.hint),)
    except OSError as error:
        return {}, (Reason("card", f"it cannot be read: {error}"),)


def _shown(
    build: Path,
    project: Project | None,
    target: Target,
    faults: Mapping[str, str],
    notice: Callable[[str], str],
) -> Shown:
    template = _template(build, project)
    if project is None or template is None:
        return _as_it_is(build, notice)
    publication = Publication(target.repo.id, target.branch, faults)
    card = filled(project, build, template=template, publication=publication)
    charts = {name: svg.encode() for name, svg in card.charts.items()}
    return {README: card.text.encode(), **charts}


def _template(build: Path, project: Project | None) -> str | None:
    """What is filled: a card of kbuild's that was edited beside the variants, else the project's.

    None for a card that another tool has filled, and where there is none.
    """
    beside = build / CARD
    if beside.is_file():
        text = read_card(beside)
        known = unsealed(text)
        if known is None:
            return None
        if known[1]:
            return text
    own = project.root / CARD if project else beside
    return read_card(own) if own.is_file() else None


def _as_it_is(build: Path, notice: Callable[[str], str]) -> Shown:
    files = card_files(build)
    if not files:
        return {}
    text = read_card(files[0])
    lines = [str(n) for n, line in enumerate(text.splitlines(), 1) if UNFINISHED.search(line)]
    if lines:
        words = f"{CARD}: something is still to be done (line {', '.join(lines)})"
        raise CardError(words, hint=_HINT)
    return {README: notice(text).encode(), **{path.name: path.read_bytes() for path in files[1:]}}

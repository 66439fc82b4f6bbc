"""The card of an upload: the one beside the variants, else the project's, filled now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kbuild.card import UNFINISHED, CardError, facts_of, fill_card
from kbuild.errors import KbuildError
from kbuild.hub.layout import CARD
from kbuild.hub.notice import with_notice
from kbuild.hub.reasons import Reason
from kbuild.project import Project

_SUBJECT = "card"
_UNFINISHED = "write those parts of CARD.md, or take them out"


def card_reasons(project: Project) -> tuple[Reason, ...]:
    """Why the project's card may not be published as it would be filled now."""
    _, reasons = card_of(None, project, names=())
    return reasons


def card_of(
    beside: Path | None,
    project: Project | None,
    *,
    names: Sequence[str],
    dirty: Sequence[str] = (),
    noncompliant: Sequence[str] = (),
) -> tuple[bytes | None, tuple[Reason, ...]]:
    """The text of the card with the notices that are due, and why it may not be published.

    Args:
        beside: the filled card beside the variants, if there is one.
        project: whose card is filled when there is none.
        names: the variants that such a card lists.
        dirty: variants that it has to name as dirty.
        noncompliant: variants that it has to name as not keeping promises.
    """
    try:
        text = beside.read_text("utf-8") if beside else _filled(project, names)
    except (OSError, UnicodeError) as error:
        return None, (Reason(_SUBJECT, f"it cannot be read: {error}"),)
    except KbuildError as error:
        return None, (Reason(_SUBJECT, error.message, error.hint),)
    if text is None:
        return None, ()
    lines = [str(n) for n, line in enumerate(text.splitlines(), 1) if UNFINISHED in line]
    if lines:
        words = f"it still says {UNFINISHED} (line {', '.join(lines)})"
        return None, (Reason(_SUBJECT, words, _UNFINISHED),)
    return with_notice(text, dirty=dirty, noncompliant=noncompliant).encode(), ()


def _filled(project: Project | None, names: Sequence[str]) -> str | None:
    template = project.root / CARD if project else None
    if project is None or template is None or not template.is_file():
        return None
    general = project.file.general
    repo_id = general.hub.repo_id if general.hub and general.hub.repo_id else None
    if repo_id is None:
        raise CardError("it needs `general.hub.repo-id`, to say how the kernel is loaded")
    facts = facts_of(
        project.root,
        repo_id=repo_id,
        name=general.name,
        version=general.version,
        license=general.license,
        upstream=general.upstream,
        source=general.source,
        variants=names,
    )
    return fill_card(template.read_text("utf-8"), facts)

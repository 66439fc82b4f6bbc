"""The part of a card that says what should make a reader careful. Refilled, never doubled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

_BEGIN, _END = "<!-- kbuild: notice -->", "<!-- kbuild: end of notice -->"
_OLD = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_FRONT = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


def with_notice(
    card: str,
    *,
    dirty: Sequence[str],
    noncompliant: Sequence[str],
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """The card with a notice about some variants below its front matter; without when all is well.

    Args:
        card: text of the filled card.
        dirty: variants made from sources that are in no commit.
        noncompliant: variants that break promises.
        overruled: checks that found errors which the author overruled, with reasons, by variant.
    """
    bare = _OLD.sub("", card)
    by_check: dict[tuple[str, str], list[str]] = {}
    for variant, checks in (overruled or {}).items():
        for check in checks.items():
            by_check.setdefault(check, []).append(variant)
    sentences = [
        *_sentence(dirty, "built from sources that are in no commit: nobody can build {} again"),
        *_sentence(noncompliant, "published although kbuild's checks found faults in {}"),
        *(
            f"The author overruled what the check `{check}` found in {_listed(names)}: {_said(why)}"
            for (check, why), names in by_check.items()
        ),
    ]
    if not sentences:
        return bare
    quoted = "\n".join(f"> {line}" for line in ("**Take care.**", *sentences))
    front = _FRONT.match(bare)
    at = front.end() if front else 0
    return f"{bare[:at]}{_BEGIN}\n{quoted}\n{_END}\n\n{bare[at:]}"


def _sentence(names: Sequence[str], words: str) -> tuple[str, ...]:
    if not names:
        return ()
    listed = _listed(names)
    verb, them = ("was", "it") if len(names) == 1 else ("were", "them")
    return (f"{listed} {verb} {words.format(them)}.",)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _said(reason: str) -> str:
    """A reason as text of a card: nothing in it is Markdown or HTML, and it ends a sentence."""
    text = escape(reason.rstrip("."), quote=False)
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", text) + "."

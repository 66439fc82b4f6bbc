"""The part of a card that says what should make a reader careful. Refilled, never doubled."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BEGIN, _END = "<!-- kbuild: notice -->", "<!-- kbuild: end of notice -->"
_OLD = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_FRONT = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


def with_notice(card: str, *, dirty: Sequence[str], noncompliant: Sequence[str]) -> str:
    """The card with a notice about some variants below its front matter; without when all is well.

    Args:
        card: text of the filled card.
        dirty: variants made from sources that are in no commit.
        noncompliant: variants that break promises.
    """
    bare = _OLD.sub("", card)
    sentences = [
        *_sentence(dirty, "built from sources that are in no commit: nobody can build {} again"),
        *_sentence(noncompliant, "published although kbuild's checks found faults in {}"),
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
    listed = ", ".join(f"`{name}`" for name in names)
    verb, them = ("was", "it") if len(names) == 1 else ("were", "them")
    return (f"{listed} {verb} {words.format(them)}.",)

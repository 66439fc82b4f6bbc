"""The notice about some variants in a kernel's card on the Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

_BEGIN, _END = "<!-- kbuild: notice -->", "<!-- kbuild: end of notice -->"
_OLD_NOTICE = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


def with_notice(
    card: str,
    *,
    dirty: Sequence[str],
    noncompliant: Sequence[str],
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """The card with a notice about some variants below its front matter, if one is due."""
    bare = _OLD_NOTICE.sub("", card)
    by_check: dict[tuple[str, str], list[str]] = {}
    for variant, checks in (overruled or {}).items():
        for check in checks.items():
            by_check.setdefault(check, []).append(variant)
    sentences = [
        *_sentence(dirty, "built from uncommitted sources, so {} cannot be built again"),
        *_sentence(noncompliant, "published although kbuild's checks found faults in {}"),
        *(
            f"The author overruled what the check `{check}` found in {_listed(names)}: "
            f"{_escape_reason(why)}"
            for (check, why), names in by_check.items()
        ),
    ]
    if not sentences:
        return bare
    quoted = "\n".join(f"> {line}" for line in ("**Take care.**", *sentences))
    front = _FRONT_MATTER.match(bare)
    at = front.end() if front else 0
    return f"{bare[:at]}{_BEGIN}\n{quoted}\n{_END}\n\n{bare[at:]}"


def _sentence(names: Sequence[str], text: str) -> tuple[str, ...]:
    if not names:
        return ()
    listed = _listed(names)
    verb, them = ("was", "it") if len(names) == 1 else ("were", "them")
    return (f"{listed} {verb} {text.format(them)}.",)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _escape_reason(reason: str) -> str:
    """A reason as text of a card: nothing in it is Markdown or HTML, and it ends a sentence."""
    text = escape(reason.rstrip("."), quote=False)
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", text) + "."

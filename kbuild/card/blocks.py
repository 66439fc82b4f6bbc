"""The parts of a card that kbuild fills: what stands between two marks.

    <!-- kbuild:functions -->
    <!-- /kbuild:functions -->

Filling puts text between the marks and its digest into the first one. Filled again, a part is
replaced only when it is empty or still has that digest: what was edited by hand stays, as does
every byte outside the marks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kbuild.card.model import CardError

_MARK = re.compile(r"<!-- (?P<end>/?)kbuild:(?P<name>[\w-]+)(?: (?P<digest>\w+))? -->")
FILLED = "filled"
EDITED = "edited"
_DIGITS = 12
Section = Callable[[str], str]
"""The text of the section of that name; empty when there is nothing to tell."""


@dataclass(frozen=True)
class Block:
    """One part between marks."""

    name: str
    digest: str
    """Of what kbuild put there; empty when it did not fill the part yet."""
    content: str

    @property
    def is_ours(self) -> bool:
        """True when nobody wrote into the part."""
        if not self.digest:
            return not self.content.strip()
        return self.digest == digest_of(self.content)

    def __str__(self) -> str:
        digest = f" {self.digest}" if self.digest else ""
        opening = f"<!-- kbuild:{self.name}{digest} -->"
        return f"{opening}{self.content}<!-- /kbuild:{self.name} -->"


def split(text: str) -> Iterator[str | Block]:
    """The card as plain text and parts, in order; joined, they are the text again.

    Raises:
        CardError: a part does not end, or ends without having begun.
    """
    at = 0
    opening: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark["name"] == FILLED:
            continue
        if bool(mark["end"]) == (opening is None) or (opening and mark["name"] != opening["name"]):
            raise _unbalanced(text, opening or mark)
        if opening is None:
            yield text[at : mark.start()]
            opening = mark
        else:
            content = text[opening.end() : mark.start()]
            yield Block(opening["name"], opening["digest"] or "", content)
            opening, at = None, mark.end()
    if opening is not None:
        raise _unbalanced(text, opening)
    yield text[at:]


def fill_blocks(text: str, section: Section, newline: str) -> str:
    """The text with every part that is ours filled anew."""
    parts = (_filled(part, section, newline) for part in split(text))
    return "".join(map(str, parts))


def block_of(name: str, text: str, newline: str = "\n") -> Block:
    """A part with the text and its digest."""
    content = newline
    if text.strip():
        lines = ["", "", *text.strip("\n").split("\n"), "", ""]
        content = newline.join(lines)
    return Block(name, digest_of(content), content)


def digest_of(content: str) -> str:
    """A short digest that does not depend on how lines end: git may change that."""
    plain = content.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    return hashlib.sha256(plain).hexdigest()[:_DIGITS]


def sealed(text: str, newline: str, *, edited: bool) -> str:
    """The card with a last line that says what kbuild made of it.

    The digest of a card that was edited is not taken: it stays marked as edited.
    """
    body = text if text.endswith("\n") or not text else text + newline
    digest = EDITED if edited else digest_of(body)
    return f"{body}<!-- kbuild:{FILLED} {digest} -->{newline}"


def unsealed(text: str) -> tuple[str, bool] | None:
    """A filled card without that line, and whether it was edited; None for other texts."""
    marks = [mark for mark in _MARK.finditer(text) if mark["name"] == FILLED]
    if not marks:
        return None
    mark = marks[-1]
    after = re.sub(r"\A\r?\n", "", text[mark.end() :], count=1)
    body = text[: mark.start()]
    return body + after, bool(after) or mark["digest"] != digest_of(body)


def _filled(part: str | Block, section: Section, newline: str) -> str | Block:
    if isinstance(part, str) or not part.is_ours:
        return part
    return block_of(part.name, section(part.name), newline)


def _unbalanced(text: str, mark: re.Match[str]) -> CardError:
    line = text.count("\n", 0, mark.start()) + 1
    name = mark["name"]
    words = "ends without having begun" if mark["end"] else "does not end"
    hint = f"write `<!-- kbuild:{name} -->` and `<!-- /kbuild:{name} -->`"
    return CardError(f"CARD.md:{line}: the part `{name}` {words}", hint=hint)

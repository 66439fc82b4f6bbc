"""The Markdown of a card: the parts between marks that kbuild fills, and the front matter.

    <!-- kbuild:functions -->
    <!-- /kbuild:functions -->

Filling writes text between the marks and its digest into the first mark. A part is filled again
only when it is empty or still has that digest: edited parts and all bytes outside the marks
stay. In the front matter kbuild sets licence, library and tag; the Hub's licence names are in
`hub_licences.txt`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from kbuild.publish.card.model import CardError

_MARK = re.compile(r"<!-- (?P<end>/?)kbuild:(?P<name>[\w-]+)(?: (?P<digest>\w+))? -->")
FILLED_MARK = "filled"
EDITED_MARK = "edited"
_DIGEST_DIGITS = 12
SectionText = Callable[[str], str]
"""The text of the section of that name; empty when there is nothing to tell."""


@dataclass(frozen=True)
class CardBlock:
    """One part between marks."""

    name: str
    digest: str
    """Digest of kbuild's text; empty when the part was never filled."""
    content: str

    @property
    def is_ours(self) -> bool:
        """True when nobody wrote into the part."""
        if not self.digest:
            return not self.content.strip()
        return self.digest == text_digest(self.content)

    def __str__(self) -> str:
        digest = f" {self.digest}" if self.digest else ""
        opening = f"<!-- kbuild:{self.name}{digest} -->"
        return f"{opening}{self.content}<!-- /kbuild:{self.name} -->"


def split_blocks(text: str) -> Iterator[str | CardBlock]:
    """The card as plain text and parts, in order; joined, they are the text again.

    Raises:
        CardError: a part does not end, or ends without having begun.
    """
    at = 0
    opening: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark["name"] == FILLED_MARK:
            continue
        if bool(mark["end"]) == (opening is None) or (opening and mark["name"] != opening["name"]):
            raise _unbalanced_error(text, opening or mark)
        if opening is None:
            yield text[at : mark.start()]
            opening = mark
        else:
            content = text[opening.end() : mark.start()]
            yield CardBlock(opening["name"], opening["digest"] or "", content)
            opening, at = None, mark.end()
    if opening is not None:
        raise _unbalanced_error(text, opening)
    yield text[at:]


def fill_blocks(text: str, section: SectionText, newline: str) -> str:
    """The text with every part that is ours filled anew."""
    parts = (_fill_block(part, section, newline) for part in split_blocks(text))
    return "".join(map(str, parts))


def make_block(name: str, text: str, newline: str = "\n") -> CardBlock:
    """A part with the text and its digest."""
    content = newline
    if text.strip():
        content = newline.join(["", "", *text.strip("\n").split("\n"), "", ""])
    return CardBlock(name, text_digest(content), content)


def text_digest(content: str) -> str:
    """A short digest that does not depend on how lines end: git may change that."""
    plain = content.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    return hashlib.sha256(plain).hexdigest()[:_DIGEST_DIGITS]


def add_digest_line(text: str, newline: str, *, edited: bool) -> str:
    """Add a last line to the card with the digest of its text, or the mark of an edited card.

    The digest of a card that was edited is not taken: it stays marked as edited.
    """
    body = text if text.endswith("\n") or not text else text + newline
    digest = EDITED_MARK if edited else text_digest(body)
    return f"{body}<!-- kbuild:{FILLED_MARK} {digest} -->{newline}"


def remove_digest_line(text: str) -> tuple[str, bool] | None:
    """A filled card without that line, and whether it was edited; None for other texts."""
    marks = [mark for mark in _MARK.finditer(text) if mark["name"] == FILLED_MARK]
    if not marks:
        return None
    mark = marks[-1]
    after = re.sub(r"\A\r?\n", "", text[mark.end() :], count=1)
    body = text[: mark.start()]
    return body + after, bool(after) or mark["digest"] != text_digest(body)


def _fill_block(part: str | CardBlock, section: SectionText, newline: str) -> str | CardBlock:
    if isinstance(part, str) or not part.is_ours:
        return part
    return make_block(part.name, section(part.name), newline)


def _unbalanced_error(text: str, mark: re.Match[str]) -> CardError:
    line = text.count("\n", 0, mark.start()) + 1
    name = mark["name"]
    problem = "ends without having begun" if mark["end"] else "does not end"
    hint = f"write `<!-- kbuild:{name} -->` and `<!-- /kbuild:{name} -->`"
    return CardError(f"CARD.md:{line}: the part `{name}` {problem}", hint=hint)


LIBRARY_NAME = "kernels"
CARD_TAG = "kernel"
_FENCE = re.compile(r"---[ \t]*")
_YAML_KEY = re.compile(r"(?P<key>[\w-]+)[ \t]*:(?P<value>.*)")
_YAML_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<value>.*)")
_SPDX_ENDING = re.compile(r"-(?:only|or-later)$")
_LICENSE_LINK = "LICENSE"


def with_front_matter(text: str, license_: str, newline: str) -> str:
    """The card with the keys that the Hub expects, the others as they are.

    Raises:
        CardError: the front matter does not end.
    """
    bom, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    lines = text.split("\n")
    if not _is_fence(lines[0]):
        block = [*_update_keys([], license_, ""), "---", ""]
        return bom + newline.join(["---", *block, text])
    end = next((at for at in range(1, len(lines)) if _is_fence(lines[at])), None)
    if end is None:
        message = "CARD.md:1: the front matter that begins here does not end"
        raise CardError(message, hint="write `---` below it")
    ending = "\r" if newline == "\r\n" else ""
    updated = _update_keys(lines[1:end], license_, ending)
    return bom + "\n".join([lines[0], *updated, *lines[end:]])


def hub_license(spdx: str) -> Mapping[str, str]:
    """The keys by which the Hub knows a licence, in the order in which cards have them."""
    plain = _SPDX_ENDING.sub("", spdx.lower())
    if plain in _hub_licences():
        return {"license": plain}
    name = re.sub(r"[^a-z0-9.]+", "-", spdx.lower()).strip("-.")
    return {"license": "other", "license_name": name, "license_link": _LICENSE_LINK}


@cache
def _hub_licences() -> frozenset[str]:
    text = (files("kbuild.publish.card") / "hub_licences.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _is_fence(line: str) -> bool:
    return _FENCE.fullmatch(line.rstrip("\r")) is not None


def _update_keys(lines: list[str], license_: str, ending: str) -> list[str]:
    lines = _set_value(lines, "library_name", LIBRARY_NAME, ending)
    for key, value in hub_license(license_).items():
        if key == "license" or _find_key(lines, key) is None:
            lines = _set_value(lines, key, value, ending)
    return _add_tag(lines, ending)


def _find_key(lines: list[str], key: str) -> tuple[int, int] | None:
    """The first line of a key, and the one behind its last."""
    for at, line in enumerate(lines):
        match = _YAML_KEY.match(line)
        if match and match["key"] == key:
            rest = (
                n for n in range(at + 1, len(lines)) if not lines[n].startswith((" ", "\t", "- "))
            )
            return at, next(rest, len(lines))
    return None


def _set_value(lines: list[str], key: str, value: str, ending: str) -> list[str]:
    written = f"{key}: {value}{ending}"
    place = _find_key(lines, key)
    if place is None:
        return [*lines, written]
    if _plain_scalar(lines[place[0]].partition(":")[2]) == value and place[1] == place[0] + 1:
        return lines
    return [*lines[: place[0]], written, *lines[place[1] :]]


def _add_tag(lines: list[str], ending: str) -> list[str]:
    place = _find_key(lines, "tags")
    if place is None:
        return [*lines, f"tags:{ending}", f"  - {CARD_TAG}{ending}"]
    first, end = place
    value = lines[first].partition(":")[2].strip()
    if value.startswith("["):
        before, bracket, after = lines[first].rpartition("]")
        names = before.partition("[")[2]
        if not bracket or CARD_TAG in {_plain_scalar(name) for name in names.split(",")}:
            return lines
        comma = ", " if names.strip() else ""
        return [*lines[:first], f"{before}{comma}{CARD_TAG}]{after}", *lines[first + 1 :]]
    items = [match for line in lines[first + 1 : end] if (match := _YAML_ITEM.match(line))]
    if (
        CARD_TAG in {_plain_scalar(item["value"]) for item in items}
        or _plain_scalar(value) == CARD_TAG
    ):
        return lines
    indent = items[-1]["indent"] if items else "  "
    kept = [] if not value or value.startswith("#") else [f"{indent}- {value}{ending}"]
    head = f"tags:{ending}" if kept else lines[first]
    item = f"{indent}- {CARD_TAG}{ending}"
    return [*lines[:first], head, *kept, *lines[first + 1 : end], item, *lines[end:]]


def _plain_scalar(value: str) -> str:
    """A scalar without its quotes and comment."""
    return value.partition(" #")[0].strip().strip("\"'")


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

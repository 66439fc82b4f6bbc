"""The YAML at the top of a card, as far as kbuild answers for it: licence, library and tag.

Lines of other keys are not touched. The Hub knows licences by identifiers of its own
(`hub_licences.txt`); one that it does not know is `other`, with its name and a link.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from kbuild.card.model import CardError

LIBRARY = "kernels"
TAG = "kernel"
_FENCE = re.compile(r"---[ \t]*")
_KEY = re.compile(r"(?P<key>[\w-]+)[ \t]*:(?P<value>.*)")
_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<value>.*)")
_SPDX_ENDING = re.compile(r"-(?:only|or-later)$")
_LINK = "LICENSE"


def with_front_matter(text: str, license_: str, newline: str) -> str:
    """The card with the keys that the Hub expects, the others as they are.

    Args:
        text: the card.
        license_: an SPDX identifier or expression.
        newline: how the card's lines end.

    Raises:
        CardError: the front matter does not end.
    """
    bom, text = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    lines = text.split("\n")
    if not _is_fence(lines[0]):
        block = [*_updated([], license_, ""), "---", ""]
        return bom + newline.join(["---", *block, text])
    end = next((at for at in range(1, len(lines)) if _is_fence(lines[at])), None)
    if end is None:
        message = "CARD.md:1: the front matter that begins here does not end"
        raise CardError(message, hint="write `---` below it")
    ending = "\r" if newline == "\r\n" else ""
    updated = _updated(lines[1:end], license_, ending)
    return bom + "\n".join([lines[0], *updated, *lines[end:]])


def hub_license(spdx: str) -> Mapping[str, str]:
    """The keys by which the Hub knows a licence, in the order in which cards have them."""
    plain = _SPDX_ENDING.sub("", spdx.lower())
    if plain in _known():
        return {"license": plain}
    name = re.sub(r"[^a-z0-9.]+", "-", spdx.lower()).strip("-.")
    return {"license": "other", "license_name": name, "license_link": _LINK}


@cache
def _known() -> frozenset[str]:
    text = (files("kbuild.card") / "hub_licences.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _is_fence(line: str) -> bool:
    return _FENCE.fullmatch(line.rstrip("\r")) is not None


def _updated(lines: list[str], license_: str, ending: str) -> list[str]:
    lines = _with_value(lines, "library_name", LIBRARY, ending)
    for key, value in hub_license(license_).items():
        if key == "license" or _place(lines, key) is None:
            lines = _with_value(lines, key, value, ending)
    return _with_tag(lines, ending)


def _place(lines: list[str], key: str) -> tuple[int, int] | None:
    """The first line of a key, and the one behind its last."""
    for at, line in enumerate(lines):
        match = _KEY.match(line)
        if match and match["key"] == key:
            rest = (n for n in range(at + 1, len(lines)) if not _goes_on(lines[n]))
            return at, next(rest, len(lines))
    return None


def _goes_on(line: str) -> bool:
    """True for a line that belongs to the key above: indented, or an item of its list."""
    return line.startswith((" ", "\t", "- "))


def _with_value(lines: list[str], key: str, value: str, ending: str) -> list[str]:
    written = f"{key}: {value}{ending}"
    place = _place(lines, key)
    if place is None:
        return [*lines, written]
    if _plain(lines[place[0]].partition(":")[2]) == value and place[1] == place[0] + 1:
        return lines
    return [*lines[: place[0]], written, *lines[place[1] :]]


def _with_tag(lines: list[str], ending: str) -> list[str]:
    place = _place(lines, "tags")
    if place is None:
        return [*lines, f"tags:{ending}", f"  - {TAG}{ending}"]
    first, end = place
    value = lines[first].partition(":")[2].strip()
    if value.startswith("["):
        return _with_inline_tag(lines, first)
    items = [match for line in lines[first + 1 : end] if (match := _ITEM.match(line))]
    if TAG in {_plain(item["value"]) for item in items} or _plain(value) == TAG:
        return lines
    indent = items[-1]["indent"] if items else "  "
    kept = [] if not value or value.startswith("#") else [f"{indent}- {value}{ending}"]
    head = f"tags:{ending}" if kept else lines[first]
    item = f"{indent}- {TAG}{ending}"
    return [*lines[:first], head, *kept, *lines[first + 1 : end], item, *lines[end:]]


def _with_inline_tag(lines: list[str], at: int) -> list[str]:
    before, bracket, after = lines[at].rpartition("]")
    names = before.partition("[")[2]
    if not bracket or TAG in {_plain(name) for name in names.split(",")}:
        return lines
    comma = ", " if names.strip() else ""
    return [*lines[:at], f"{before}{comma}{TAG}]{after}", *lines[at + 1 :]]


def _plain(value: str) -> str:
    """A scalar without its quotes and comment."""
    return value.partition(" #")[0].strip().strip("\"'")

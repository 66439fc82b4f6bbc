"""Where two runs of bytes part, and what each has there."""

from __future__ import annotations

from kbuild.comparison.model import Place

SHOWN = 8
"""Bytes that are shown of each side."""
_BLOCK = 1 << 16
_TEXT = 60
_SHORTEST = 4


def first_offset(before: bytes, after: bytes) -> int | None:
    """Offset of the first byte that differs; the shorter length when one continues the other."""
    if before == after:
        return None
    shorter = min(len(before), len(after))
    for start in range(0, shorter, _BLOCK):
        ours, theirs = before[start : start + _BLOCK], after[start : start + _BLOCK]
        if ours != theirs:
            pairs = enumerate(zip(ours, theirs, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), None)
            if at is not None:
                return start + at
    return shorter


def first_difference(
    section: str, before: bytes, after: bytes, symbol: str = "", *, text: bool = False
) -> Place:
    """The place where two contents of a section part; they must differ.

    `text` is for tables of strings: the whole string is shown, when it is one.
    """
    offset = first_offset(before, after)
    assert offset is not None  # noqa: S101 - see above
    shown = _string_at if text else _hex_at
    sizes = f"{len(before)} -> {len(after)} bytes" if len(before) != len(after) else ""
    return Place(section, symbol, offset, shown(before, offset), shown(after, offset), sizes)


def _hex_at(data: bytes, offset: int) -> str:
    return data[offset : offset + SHOWN].hex(" ") or "end"


def _string_at(data: bytes, offset: int) -> str:
    """The string that covers the offset; bytes when that is no text."""
    start = data.rfind(b"\0", 0, offset) + 1
    end = data.find(b"\0", offset)
    whole = data[start : end if end >= 0 else len(data)]
    try:
        words = whole.decode("utf-8")
    except UnicodeDecodeError:
        return _hex_at(data, offset)
    if len(words) < _SHORTEST or not words.isprintable():
        return _hex_at(data, offset)
    cut = max(0, offset - start - _TEXT // 2)
    return (
        f"`{'…' if cut else ''}{words[cut : cut + _TEXT]}{'…' if len(words) > cut + _TEXT else ''}`"
    )

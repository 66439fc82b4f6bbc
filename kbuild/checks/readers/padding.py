"""What linkers put between the parts of a section."""

from __future__ import annotations

from mmap import mmap

_STEP = 4096


def skip_padding(data: mmap, at: int, stop: int) -> int:
    """The offset of the first byte from `at` on that is not zero; `stop` when there is none."""
    while at < stop:
        piece = data[at : min(at + _STEP, stop)]
        rest = piece.lstrip(b"\0")
        if rest:
            return at + len(piece) - len(rest)
        at += len(piece)
    return stop

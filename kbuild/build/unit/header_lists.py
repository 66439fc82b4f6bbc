"""The headers that a C++ source begins with, and the lists of headers that are compiled."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPILED, LIST = "pre.h.gch", "list.h"
"""Files in an entry's folder: the precompiled headers, and their names."""
_TORCH = ("torch/", "ATen/", "c10/")
_OF_TOOLKIT = "/cuda/"
"""Name of folders with headers of Torch that include some of a toolkit."""

_INCLUDE = re.compile(rb'#[ \t]*include[ \t]*(?:<([^>"\\\n]+)>|"([^"\\\n]+)")')
_ONCE = re.compile(rb"#[ \t]*pragma[ \t]+once")
_COMMENTS = re.compile(rb"(?:\s+|//[^\n\\]*(?=\n|\Z)|/\*.*?\*/)*", re.DOTALL)


def leading_headers(text: bytes, quoted: Callable[[str], bytes] | None = None) -> Iterator[str]:
    """Names of the headers with which a source begins, before any other token or directive.

    Args:
        text: the source.
        quoted: reads a header that is included in quotes. Its own leading headers count if it
            begins with `#pragma once`; nothing after it does. None if no such header counts.
    """
    rest = _without_comments(text)
    while rest.startswith(b"#"):
        line, _, rest = rest.partition(b"\n")
        include = _INCLUDE.fullmatch(line.partition(b"//")[0].rstrip())
        if include is None:
            return
        if include[1] is None:
            inner = quoted(os.fsdecode(include[2])) if quoted else b""
            once, _, inner = _without_comments(inner).partition(b"\n")
            if _ONCE.fullmatch(once.strip()):
                yield from leading_headers(inner)
            return
        yield os.fsdecode(include[1])
        rest = _without_comments(rest)


def _without_comments(text: bytes) -> bytes:
    """The text from its first token or directive on."""
    match = _COMMENTS.match(text)
    return text[match.end() :] if match else text


def headers_to_compile(
    text: bytes, quoted: Callable[[str], bytes], is_left_out: Callable[[str], bool]
) -> list[list[str]]:
    """The lists of headers with which a source may start, the longest first.

    Those at its start up to the last of Torch's, and up to the first one, with which many begin.
    """
    names: list[str] = []
    for name in leading_headers(text, quoted):
        if is_left_out(name) or _OF_TOOLKIT in name:
            break
        names.append(name)
    of_torch = [number for number, name in enumerate(names, 1) if name.startswith(_TORCH)]
    return [names[:count] for count in dict.fromkeys((*of_torch[-1:], *of_torch[:1]))]

"""Doubtful things in the C++ sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.config.rules.paths import lists

_HEAVY = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]torch/extension\.h[>\"]", re.MULTILINE)
_MESSAGE = "`torch/extension.h` pulls in all of Torch and Python, and dominates the compile time"
_HINT = "include what is used: `torch/library.h`, `ATen/core/Tensor.h`, `ATen/Functions.h`, ..."


def lean_headers(document: Document, context: Context) -> Iterator[Issue]:
    """Sources do not include `torch/extension.h`, which includes everything."""
    listed = {
        source: place
        for path in lists(document, "src")
        for place, source in document.strings(*path)
    }
    for source, place in sorted(listed.items()):
        try:
            inside = context.tree.is_file(source) and context.tree.is_inside(source)
            data = context.tree.read_bytes(source) if inside else b""
        except (OSError, RuntimeError, ValueError):
            continue  # the path rules speak about it
        if match := _HEAVY.search(data):
            line = data.count(b"\n", 0, match.start()) + 1
            yield Issue(place, _MESSAGE, _HINT, "warning", file=source, line=line)


RULES = (lean_headers,)

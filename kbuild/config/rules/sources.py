"""Doubtful things in the C++ sources."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue
from kbuild.config.rules.paths import lists
from kbuild.includes import scanned

_HEAVY = "torch/extension.h"
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
            includes = scanned(context.tree, source).includes if inside else ()
        except (OSError, RuntimeError, ValueError):
            continue  # the path rules speak about it
        heavy = next((include for include in includes if include.name == _HEAVY), None)
        if heavy is not None:
            yield Issue(place, _MESSAGE, _HINT, "warning", file=source, line=heavy.line)


RULES = (lean_headers,)

"""Triton's complaints at the line of the author's that they are about."""

from __future__ import annotations

import gc
import traceback
from typing import Any

from kbuild.languages.worker.functions import Kernel, is_plain
from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.sources import Sources

_AROUND = 3
"""Lines of the source that are shown before the one in question."""
_MOST = 2000
"""Characters of a message."""
_MOST_LINES = 12


def explained(error: BaseException, kernel: Kernel, sources: Sources) -> RefusalError:
    """The refusal for what Triton raised."""
    chain = _chain(error)
    placed = [one for one in chain if getattr(one, "node", None) is not None]
    if placed:
        return _at_node(placed[-1], chain[-1], sources)
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    refusal = RefusalError(lines[0])
    refusal.excerpt = tuple(line for line in lines[1:_MOST_LINES] if line)
    refusal.file = sources.relative(kernel.jit.fn.__code__.co_filename)
    refusal.line = _first_line(kernel.jit)
    return refusal


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and what it was raised from, the innermost last."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def _at_node(error: Any, innermost: BaseException, sources: Sources) -> RefusalError:
    message = getattr(innermost, "error_message", None) or getattr(error, "error_message", None)
    if innermost is not error and not hasattr(innermost, "node"):
        message = f"{type(innermost).__name__}: {innermost}"
    row, column = error.node.lineno, error.node.col_offset
    refusal = RefusalError(str(message or "Triton cannot compile this")[:_MOST])
    owner = _owner(error.src or "")
    if owner is not None:
        refusal.file = sources.relative(owner.fn.__code__.co_filename)
        refusal.line = _first_line(owner) + row - 1
    lines = (error.src or "").splitlines()
    refusal.excerpt = (*lines[max(0, row - 1 - _AROUND) : row], " " * column + "^")
    return refusal


def _owner(source: str) -> Any:
    """The function whose text this is."""
    for one in gc.get_objects():
        if is_plain(one) and getattr(one, "_src", getattr(one, "src", "")) == source:
            return one
    return None


def _first_line(jit: Any) -> int:
    """The line of `def`."""
    for index, line in enumerate(jit.raw_src):
        if line.strip().startswith("def "):
            return int(jit.starting_line_number) + index
    return int(jit.starting_line_number)

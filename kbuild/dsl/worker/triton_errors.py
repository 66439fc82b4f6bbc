"""Turns Triton's exceptions and printed errors into refusals with the author's lines."""

from __future__ import annotations

import gc
import os
import stat
import traceback
from typing import Any

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceModules
from kbuild.dsl.worker.triton_functions import TritonKernel, is_jit_function

_AROUND = 3
"""Number of source lines that are shown before the line of an error."""
_MOST = 2000
"""Maximum of characters in a message."""
_MOST_LINES = 12


def explain_error(
    error: BaseException, kernel: TritonKernel, sources: SourceModules
) -> RefusalError:
    """Return the refusal for an exception of Triton's."""
    chain = _chain(error)
    placed = [cause for cause in chain if getattr(cause, "node", None) is not None]
    if placed:
        return _at_node(placed[-1], chain[-1], sources)
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    refusal = RefusalError(lines[0])
    refusal.excerpt = tuple(line for line in lines[1:_MOST_LINES] if line)
    refusal.file = sources.relative(kernel.jit.fn.__code__.co_filename)
    refusal.line = _first_line(kernel.jit)
    return refusal


def size_of_stderr() -> int:
    """Offset at which the compiler prints next; 0 if stderr is no file."""
    status = os.fstat(2)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def diagnostics(start: int) -> tuple[str, ...]:
    """Lines that MLIR has printed since `start`, from its first error; exceptions lack them."""
    if size_of_stderr() <= start:
        return ()
    with open("/dev/fd/2", "rb") as stream:  # noqa: PTH123 - no file of its own
        stream.seek(start)
        lines = stream.read(_MOST).decode("utf-8", "replace").splitlines()
    first = next((at for at, line in enumerate(lines) if "error: " in line), len(lines))
    return tuple(line for line in lines[first:][:_MOST_LINES] if line)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception and its causes, the innermost last."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__
    return causes


def _at_node(error: Any, innermost: BaseException, sources: SourceModules) -> RefusalError:
    message = getattr(innermost, "error_message", None) or getattr(error, "error_message", None)
    if innermost is not error and not hasattr(innermost, "node"):
        message = f"{type(innermost).__name__}: {innermost}"
    row, column = error.node.lineno, error.node.col_offset
    message = str(message or "Triton cannot compile this")[:_MOST]
    refusal = RefusalError(message, hint=getattr(error, "hint", ""))
    owner = _owner(error.src or "")
    if owner is not None:
        refusal.file = sources.relative(owner.fn.__code__.co_filename)
        refusal.line = _first_line(owner) + row - 1
    lines = (error.src or "").splitlines()
    refusal.excerpt = (*lines[max(0, row - 1 - _AROUND) : row], " " * column + "^")
    return refusal


def _owner(source: str) -> Any:
    """The function with that source text; None if there is none."""
    for value in gc.get_objects():
        if is_jit_function(value) and getattr(value, "_src", getattr(value, "src", "")) == source:
            return value
    return None


def _first_line(jit: Any) -> int:
    """Line of the function's `def`."""
    for index, line in enumerate(jit.raw_src):
        if line.strip().startswith("def "):
            return int(jit.starting_line_number) + index
    return int(jit.starting_line_number)

"""Two ops of one result."""

from ._ops import ops  # noqa: TID252 - a variant is imported by any name

__all__ = ["forgotten", "no_stream"]
no_stream, forgotten = ops.no_stream, ops.forgotten

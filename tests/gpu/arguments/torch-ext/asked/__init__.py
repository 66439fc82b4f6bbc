"""Arguments of every kind: see `tests/gpu/test_arguments.py`."""

from ._ops import ops  # noqa: TID252 - a variant is imported by any name

asked, joined = ops.asked, ops.joined

__all__ = ["asked", "joined"]

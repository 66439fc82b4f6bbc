"""Arguments of every kind: see `tests/gpu/test_arguments.py`."""

from ._ops import ops  # noqa: TID252 - a variant is imported by any name

asked = ops.asked

__all__ = ["asked"]

"""The ops as they are; `run.py` calls them."""

from ._ops import ops

__all__ = ["ops"]

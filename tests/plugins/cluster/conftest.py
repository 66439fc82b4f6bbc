"""Fixtures of the core's tests that these use."""

from tests.support.outputs import make

__all__ = ["make"]

"""Toolchains from wheels: pinned, fetched through the user's pip settings, kept in the store."""

from kbuild.toolchains.wheels.source import Wheels

__all__ = ["Wheels"]

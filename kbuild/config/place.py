"""How a project's file is called in messages: as the user would type it."""

from __future__ import annotations

import os
from pathlib import Path


def display(root: str | os.PathLike[str], relative: str) -> str:
    """`relative` to the current folder when it lies below it, an absolute path otherwise."""
    full = _absolute(root, relative)
    try:
        short = os.path.relpath(full)
    except ValueError:  # another drive
        return full
    return full if short.startswith("..") else short.replace(os.sep, "/")


def relative(root: str | os.PathLike[str], displayed: str) -> str:
    """The inverse of `display`, from the same current folder."""
    return os.path.relpath(_absolute(displayed), _absolute(root)).replace(os.sep, "/")


def _absolute(*parts: str | os.PathLike[str]) -> str:
    return os.path.normpath(Path.cwd().joinpath(*parts))

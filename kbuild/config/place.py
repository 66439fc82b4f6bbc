"""How a project's file is called in messages: as the user would type it."""

from __future__ import annotations

import os


def display(root: str | os.PathLike[str], relative: str) -> str:
    """`relative` to the current folder when it lies below it, an absolute path otherwise."""
    full = os.path.abspath(os.path.join(root, relative))
    try:
        short = os.path.relpath(full)
    except ValueError:  # another drive
        return full
    return full if short.startswith("..") else short.replace(os.sep, "/")


def relative(root: str | os.PathLike[str], displayed: str) -> str:
    """The inverse of `display`, from the same current folder."""
    return os.path.relpath(os.path.abspath(displayed), os.path.abspath(root)).replace(os.sep, "/")

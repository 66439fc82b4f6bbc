"""Names of a project's files in messages: as the user would type them.

Imports nothing: the cached check needs it.
"""

from __future__ import annotations

import os
from pathlib import Path


def display_path(root: str | os.PathLike[str], relative: str) -> str:
    """`relative` to the current folder when it lies below it, an absolute path otherwise."""
    full = _absolute_path(root, relative)
    try:
        short = os.path.relpath(full)
    except ValueError:  # another drive
        return full
    return full if short.startswith("..") else short.replace(os.sep, "/")


def project_path(root: str | os.PathLike[str], displayed: str) -> str:
    """The inverse of `display_path`, from the same current folder."""
    return os.path.relpath(_absolute_path(displayed), _absolute_path(root)).replace(os.sep, "/")


def _absolute_path(*parts: str | os.PathLike[str]) -> str:
    return os.path.normpath(Path.cwd().joinpath(*parts))

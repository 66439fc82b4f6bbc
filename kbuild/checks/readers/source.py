"""Python sources as syntax trees, whatever they are encoded in."""

from __future__ import annotations

import ast
import warnings


def parse_source(
    source: bytes | str, *, feature_version: tuple[int, int] | None = None
) -> ast.Module:
    """The tree; warnings about the source (bad escapes) are its author's business, not ours.

    Raises:
        SyntaxError: not Python, or newer than `feature_version`.
        ValueError: null bytes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, feature_version=feature_version)

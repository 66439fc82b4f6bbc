"""The kernel's own licence as SPDX writes it, and those of others' code that becomes part of it.

A variant's `metadata.json` says under its toolchain's versions what was linked in: the entry is
called `license NAME`. Such a variant is published by an author who accepts that licence explicitly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ACCEPT_VARIABLE = "KBUILD_ACCEPT_LICENSE"
"""Names of licences that the user accepts, separated by commas."""
_ENTRY = "license "
_MAX_EXPRESSION = 400
"""Characters of an expression that somebody wrote by hand."""
_NOISE = re.compile(r"\b(?:the|licen[cs]e|version|v(?=\d))\b|v(?=\d)|[\s_,-]+")
_COMMON_SPELLINGS = {
    "bsd": "BSD-3-Clause",
    "gpl": "GPL-3.0-or-later",
    "lgpl": "LGPL-3.0-or-later",
    "agpl": "AGPL-3.0-or-later",
    "mpl": "MPL-2.0",
    "apache": "Apache-2.0",
    "mit": "MIT",
    "bsd2clause": "BSD-2-Clause",
    "bsd3clause": "BSD-3-Clause",
    "boost": "BSL-1.0",
    "apache2": "Apache-2.0",
    "apache2.0": "Apache-2.0",
    "mpl2.0": "MPL-2.0",
    "isc": "ISC",
    "gpl2": "GPL-2.0-only",
    "gpl3": "GPL-3.0-only",
    "lgpl3": "LGPL-3.0-only",
    "unlicense": "Unlicense",
    "zlib": "Zlib",
    "cc0": "CC0-1.0",
    "publicdomain": "CC0-1.0",
}
"""Spellings of usual licences, without spaces, hyphens and the word "license"."""


def spdx_doubt(text: str) -> tuple[str, str] | None:
    """The reason that the text is no SPDX expression, and what to write; None when it is one.

    SPDX compares without case, so the Hub's `apache-2.0` is an expression as well.
    """
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    other = "write `LicenseRef-` and a name for a licence that is not on SPDX's list"
    if len(text) > _MAX_EXPRESSION or not text.isprintable():
        return "is not an SPDX expression, but a longer text", other
    try:
        canonicalize_license_expression(text)
    except (InvalidLicenseExpression, SyntaxError, RecursionError, MemoryError):
        from difflib import get_close_matches

        close = get_close_matches(_NOISE.sub("", text.lower()), _COMMON_SPELLINGS, n=1, cutoff=0.8)
        guess = f"did you mean `{_COMMON_SPELLINGS[close[0]]}`? " if close else ""
        return f"`{text}` is not an SPDX expression", guess + other
    return None


@dataclass(frozen=True)
class Licence:
    """A licence by the name that `--accept-license` takes."""

    name: str
    title: str
    text: str
    """Address of the text."""


def metadata_entry(name: str) -> str:
    """The name of a licence's entry in `metadata.json`."""
    return f"{_ENTRY}{name}"


def licensed_parts(versions: Mapping[str, str]) -> dict[str, str]:
    """Name of a licence -> what is linked in under it."""
    return {
        name.removeprefix(_ENTRY): what
        for name, what in versions.items()
        if name.startswith(_ENTRY)
    }


def accepted_licences(names: Iterable[str], environ: Mapping[str, str]) -> frozenset[str]:
    """The licences that a user accepts: by the option, or by the variable."""
    named = (name.strip() for name in environ.get(ACCEPT_VARIABLE, "").split(","))
    return frozenset(name for name in (*named, *names) if name)

"""The licence of a package, by what it declares.

A licence is taken over and never chosen: where a package names none, or two, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.project.licences import spdx_doubt

LICENCE_FILES = re.compile(r"(?:licen[cs]e|copying|unlicense)(?:[-._].*)?", re.IGNORECASE)
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
}
"""Classifiers of the package index that mean one licence; `BSD License` means several."""
_SPELLINGS = {
    "mit license": "MIT", "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0", "bsd 3-clause": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause", "bsd 2-clause": "BSD-2-Clause",
}  # fmt: skip


@dataclass(frozen=True)
class DeclaredLicence:
    """A licence as one place names it."""

    text: str
    """An SPDX expression, or a name in words."""
    place: str
    """`setup.py:12`, `pyproject.toml:4`."""

    @property
    def name(self) -> str:
        """The SPDX expression; empty when it is none that kbuild knows."""
        text = self.text.strip()
        if text.startswith("License ::"):
            return _CLASSIFIERS.get(text.rpartition(" :: ")[2], "")
        if text.lower() in _SPELLINGS:
            return _SPELLINGS[text.lower()]
        return text if text and not spdx_doubt(text) else ""


def read_licence(declared: Sequence[DeclaredLicence], files: Sequence[str]) -> tuple[str, str]:
    """The SPDX expression, and why there is none: one of both is empty.

    Args:
        declared: what the package's metadata say.
        files: the names of the files with licences.
    """
    names = {part.name for part in declared}
    if len(names) == 1 and "" not in names:
        return names.pop(), ""
    evidence = [
        f"{part.place} says `{part.text.strip().partition(chr(10))[0]}`" for part in declared
    ]
    evidence += [f"{name} has a text" for name in files]
    return "", "; ".join(evidence) or "the package names no licence, and has no LICENSE file"


def licence_files(root: Path) -> Iterator[str]:
    """The files with licences in the package's folder, and those in `LICENSES/`."""
    for path in sorted(root.iterdir()):
        if path.is_file() and LICENCE_FILES.fullmatch(path.name):
            yield path.name

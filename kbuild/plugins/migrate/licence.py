"""The licence of a package, by what it declares and by the texts that lie beside it.

A licence is taken over and never chosen: where a package names none, or two, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.project.licences import spdx_doubt

LICENCE_FILES = re.compile(r"(?:licen[cs]e|copying|unlicense)(?:[-._].*)?", re.IGNORECASE)
_SPACES = re.compile(r"[\s*#/]+")
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
}
"""Classifiers of the package index that mean one licence; `BSD License` means several."""
_SPELLINGS = {
    "mit": "MIT", "mit license": "MIT", "the mit license": "MIT", "mit licence": "MIT",
    "apache 2": "Apache-2.0", "apache 2.0": "Apache-2.0", "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0", "apache license version 2.0": "Apache-2.0",
    "apache-2": "Apache-2.0", "apache2": "Apache-2.0", "apache software license 2.0": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause", "bsd-3": "BSD-3-Clause", "bsd 3 clause": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause", "new bsd": "BSD-3-Clause", "modified bsd": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause", "bsd 2-clause": "BSD-2-Clause", "bsd-2": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause", "2-clause bsd": "BSD-2-Clause", "mpl 2.0": "MPL-2.0",
}  # fmt: skip
_FAMILIES = {"bsd": ("BSD-2-Clause", "BSD-3-Clause"), "apache": ("Apache-2.0",)}
"""Names of several licences: the text decides which one it is."""
_RESTRICTED = re.compile(
    r"non-?commercial|commons clause|research purposes|academic use|evaluation purposes",
    re.IGNORECASE,
)
_TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Apache-2.0", ("apache license", "version 2.0, january 2004")),
    ("Apache-2.0", ("licensed under the apache license, version 2.0",)),
    ("AGPL-3.0-only", ("gnu affero general public license", "version 3, 19 november 2007")),
    ("LGPL-3.0-only", ("gnu lesser general public license", "version 3, 29 june 2007")),
    ("GPL-3.0-only", ("gnu general public license", "version 3, 29 june 2007")),
    ("GPL-2.0-only", ("gnu general public license", "version 2, june 1991")),
    ("MPL-2.0", ("mozilla public license", "2.0")),
    ("BSL-1.0", ("boost software license - version 1.0",)),
    ("Unlicense", ("this is free and unencumbered software released into the public domain",)),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "endorse or promote")),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms",)),
    ("MIT", ("permission is hereby granted, free of charge", "without restriction", "sublicense")),
    ("ISC", ("permission to use, copy, modify, and/or distribute this software",)),
    ("Zlib", ("provided 'as-is', without any express or implied warranty", "altered source")),
)  # fmt: skip
"""Licences by phrases of their texts, in lower case; the first whose phrases are all there."""


@dataclass(frozen=True)
class DeclaredLicence:
    """A licence as one place names it."""

    text: str
    """An SPDX expression, or a name in words."""
    place: str
    """`setup.py:12`, `pyproject.toml:4`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The licences that it may be; none when it names no known one."""
        text = self.text.strip()
        if text.startswith("License ::"):
            name = text.rpartition(" :: ")[2]
            return (_CLASSIFIERS[name],) if name in _CLASSIFIERS else _family(name)
        if text.lower() in _SPELLINGS:
            return (_SPELLINGS[text.lower()],)
        if text and not spdx_doubt(text):
            return (text,)
        return _family(text) if len(text) < 40 else ()  # noqa: PLR2004 - else a text of its own


def _family(text: str) -> tuple[str, ...]:
    word = text.lower().removesuffix(" license").removesuffix(" licence").removesuffix(" software")
    return _FAMILIES.get(word, ())


def read_licence(
    root: Path, declared: Sequence[DeclaredLicence], files: Sequence[str]
) -> tuple[str, str]:
    """The SPDX expression, and why there is none: one of both is empty.

    Args:
        root: the package's folder.
        declared: what its metadata say.
        files: the names of the files with licences.
    """
    texts = {name: _recognised(root / name) for name in files}
    by_text = {licence for licence in texts.values() if licence}
    evidence = [f"{part.place} says `{part.text}`" for part in declared if len(part.text) < 90]  # noqa: PLR2004 - else a text of its own
    evidence += [f"{name} {_described(licence)}" for name, licence in texts.items()]
    exact = {part.names[0] for part in declared if len(part.names) == 1}
    families = [part.names for part in declared if len(part.names) > 1]
    unknown = [part for part in declared if not part.names]
    if not exact and not unknown and len(by_text) == 1 and all(texts.values()):
        exact = by_text
    if len(exact) == 1:
        (licence,) = exact
        named = set(re.findall(r"[\w.+-]+", licence)) - {"AND", "OR", "WITH"}
        fits = all(_same(text, named) for text in by_text)
        if fits and all(licence in family for family in families):
            return licence, ""
    if not evidence:
        return "", "the package names no licence, and has no LICENSE file"
    return "", "; ".join(evidence)


def _same(licence: str, named: set[str]) -> bool:
    """True when a text may be of one of these licences: texts of the GPL leave later ones open."""
    base = re.sub(r"-(?:only|or-later)$", "", licence)
    return any(re.sub(r"-(?:only|or-later)$|\+$", "", name) == base for name in named)


def _described(licence: str) -> str:
    return f"is the text of {licence}" if licence else "is of no licence that kbuild knows"


def _recognised(path: Path) -> str:
    """The licence whose text the file is; empty for others, and for texts with restrictions."""
    text = _SPACES.sub(" ", path.read_text("utf-8", "replace")).lower()
    if _RESTRICTED.search(text):
        return ""
    for licence, phrases in _TEXTS:
        if all(phrase in text for phrase in phrases):
            return licence
    return ""


def licence_files(root: Path) -> Iterator[str]:
    """The files with licences in the package's folder, and those in `LICENSES/`."""
    for path in sorted(root.iterdir()):
        if path.is_file() and LICENCE_FILES.fullmatch(path.name):
            yield path.name

"""The kinds of entries that kbuild's cache has.

Compiler launchers import this once per translation unit: it imports nothing.
"""

from __future__ import annotations


class Kind:
    """One kind of entries, and how long they stay."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        version: int = 1,
        max_entries: int = 0,
        limit: str = "",
        in_project: bool = False,
        is_folder: bool = False,
    ) -> None:
        self.name = name
        """The folder in the cache, or the file in the project."""
        self.title = title
        """The entries in words, for `kbuild cache`."""
        self.version = version
        """Changes when the parts of an entry change: older entries are not read."""
        self.max_entries = max_entries
        """As many are kept, the last used ones; 0 for any number."""
        self.limit = limit
        """Name of the limit on the bytes of all kinds that have it; empty for none."""
        self.in_project = in_project
        """True for entries that lie in a project's folder and stay as long as that."""
        self.is_folder = is_folder
        """True for entries with files that a program reads: only their record is verified."""


OBJECTS_LIMIT, HEADERS_LIMIT = "objects", "headers"
ANSWERS_TITLE = "answers and facts"

PACKAGE_DIGESTS = Kind("package", ANSWERS_TITLE)
CONFIG_CHECKS = Kind("config", ANSWERS_TITLE)
FACTS = Kind("facts", ANSWERS_TITLE)
PROBE_ANSWERS = Kind("probes", ANSWERS_TITLE, max_entries=4000)
PROBE_FILES = Kind("probe-files", ANSWERS_TITLE, max_entries=64)
BUILT_VARIANTS = Kind("built", ANSWERS_TITLE, max_entries=20_000)
FLAKE_FAILURES = Kind("flakes", ANSWERS_TITLE)
FILE_HASHES = Kind("hashes", ANSWERS_TITLE)
UNIT_COSTS = Kind("units", ANSWERS_TITLE)
DESCRIPTIONS = Kind("descriptions", "descriptions of DSL kernels")
IMAGES = Kind("images", "images of DSL kernels", limit=OBJECTS_LIMIT)
OBJECTS = Kind("objects", "objects", limit=OBJECTS_LIMIT)
HEADERS = Kind("headers", "precompiled headers", limit=HEADERS_LIMIT, is_folder=True)
HEADER_REQUESTS = Kind("header-requests", ANSWERS_TITLE)
KINDS = (
    PACKAGE_DIGESTS, CONFIG_CHECKS, FACTS, PROBE_ANSWERS, PROBE_FILES, BUILT_VARIANTS,
    FLAKE_FAILURES, FILE_HASHES, UNIT_COSTS, DESCRIPTIONS, IMAGES, OBJECTS, HEADERS,
    HEADER_REQUESTS,
)  # fmt: skip
"""The kinds in kbuild's cache folder."""

BUILD_STATE = Kind("state", "the last good build of a variant", in_project=True)
UNCHANGED_BUILD = Kind("unchanged", "the output of an unchanged build", in_project=True)
LOADED_VARIANT = Kind("loaded", "a variant of `kbuild.load`", in_project=True)
FILLED_CARD = Kind("card", "the inputs of a card", in_project=True)
PRINTED_WARNINGS = Kind("warnings", "warnings that a build has printed", in_project=True)
NIX_COPY = Kind("nix-copy", "a copy from Nix's store", in_project=True)
PROJECT_KINDS = (
    BUILD_STATE, UNCHANGED_BUILD, LOADED_VARIANT, FILLED_CARD, PRINTED_WARNINGS, NIX_COPY,
)  # fmt: skip
"""The kinds in the folder `.kbuild` of a project, and in folders below."""

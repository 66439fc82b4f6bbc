"""`metadata.json`: its value, and reading it with every problem in one go. Light to import."""

from kbuild.metadata.model import (
    METADATA_FILE,
    Builder,
    GitState,
    KernelDependency,
    Metadata,
    MetadataError,
    Provenance,
    UsedToolchain,
)
from kbuild.metadata.reader import overruled_in, parse, read_metadata

__all__ = [
    "METADATA_FILE",
    "Builder",
    "GitState",
    "KernelDependency",
    "Metadata",
    "MetadataError",
    "Provenance",
    "UsedToolchain",
    "overruled_in",
    "parse",
    "read_metadata",
]

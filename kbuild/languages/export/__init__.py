"""Kernels as self-contained C: one pair of files per image, and one that joins several.

What `triton.tools.compile` and `triton.tools.link` do, with the same words on the command line.
`signature` reads what arguments are, `source` writes the C of one image, `link` the dispatcher of
several. Everything here is pure; compiling is the language's.
"""

from kbuild.languages.export.c_source import write_source
from kbuild.languages.export.link import ExportHeader, link, read_header
from kbuild.languages.export.signature import (
    ExportArgument,
    ExportSignature,
    ExportVariant,
    read_signature,
    read_target,
)

__all__ = [
    "ExportArgument",
    "ExportHeader",
    "ExportSignature",
    "ExportVariant",
    "link",
    "read_header",
    "read_signature",
    "read_target",
    "write_source",
]

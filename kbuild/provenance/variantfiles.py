"""The files of a built variant, and what lies beside it."""

from __future__ import annotations

from pathlib import Path

from kbuild.digest import digest_variant
from kbuild.errors import DamagedFileError
from kbuild.fileset import sha256_of_file
from kbuild.metadata import METADATA_FILE
from kbuild.provenance.statement import byproducts, subjects

STATEMENT_SUFFIX = ".intoto.json"
BOM_SUFFIX = ".cdx.json"
SIGNATURE_SUFFIX = ".sigstore"


def statement_of(variant: Path) -> Path:
    """Where the provenance statement is: beside the folder, whose digest it must not change.

    It is a file because clients take every folder in `build/` for a variant.
    """
    return variant.with_name(variant.name + STATEMENT_SUFFIX)


def bom_of(variant: Path) -> Path:
    """Where the list of ingredients is."""
    return variant.with_name(variant.name + BOM_SUFFIX)


def digests(variant: Path) -> dict[str, str]:
    """POSIX path -> SHA-256 in hex: the files that the digest counts, and `metadata.json`."""
    counted = (*digest_variant(variant)["files"], METADATA_FILE)
    return {path: sha256_of_file(variant / path) for path in sorted(counted)}


def discard_evidence(variant: Path) -> tuple[Path, ...]:
    """Remove a statement, its signature and its list when they are not about these files.

    Returns:
        What was removed.
    """
    statement, bom = statement_of(variant), bom_of(variant)
    if is_about(statement, variant):
        return ()
    files = (statement, signature_of(statement), bom)
    there = tuple(file for file in files if file.is_file())
    for file in there:
        file.unlink()
    return there


def signature_of(statement: Path) -> Path:
    """Where a statement's signature is."""
    return statement.with_name(statement.name + SIGNATURE_SUFFIX)


def is_about(statement: Path, variant: Path) -> bool:
    """True when the statement's subjects are exactly the variant's files as they are."""
    try:
        told = subjects(statement)
    except (OSError, DamagedFileError):
        return False
    return told == {f"{variant.name}/{path}": digest for path, digest in digests(variant).items()}


def bom_is_told(statement: Path, bom: Path) -> bool:
    """True when a list of ingredients is the one that the statement names, or is not there."""
    if not bom.is_file():
        return True
    try:
        return byproducts(statement).get(bom.name) == sha256_of_file(bom)
    except (OSError, DamagedFileError):
        return False

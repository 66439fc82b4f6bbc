"""The files of a variant's provenance, SBOM and signature, and whether they match its files."""

from __future__ import annotations

from pathlib import Path

from kbuild.pipeline.provenance.documents import byproducts, subjects
from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import METADATA_FILE
from kbuild.system.errors import DamagedFileError
from kbuild.system.files import sha256_of_file

STATEMENT_SUFFIX = ".intoto.json"
SBOM_SUFFIX = ".cdx.json"
SIGNATURE_SUFFIX = ".sigstore"


def statement_path(variant: Path) -> Path:
    """The provenance statement's file: beside the folder, whose digest it must not change.

    It is a file because clients take every folder in `build/` for a variant.
    """
    return variant.with_name(variant.name + STATEMENT_SUFFIX)


def sbom_path(variant: Path) -> Path:
    """The SBOM's file."""
    return variant.with_name(variant.name + SBOM_SUFFIX)


def file_digests(variant: Path) -> dict[str, str]:
    """POSIX path -> SHA-256 in hex: the files that the digest counts, and `metadata.json`."""
    counted = (*digest_variant(variant)["files"], METADATA_FILE)
    return {path: sha256_of_file(variant / path) for path in sorted(counted)}


def discard_outdated_attestation(variant: Path) -> tuple[Path, ...]:
    """Remove a statement, its signature and its list when they are not about these files.

    Returns:
        What was removed.
    """
    statement, bom = statement_path(variant), sbom_path(variant)
    if matches_variant(statement, variant):
        return ()
    files = (statement, signature_path(statement), bom)
    there = tuple(file for file in files if file.is_file())
    for file in there:
        file.unlink()
    return there


def signature_path(statement: Path) -> Path:
    """The file of a statement's signature."""
    return statement.with_name(statement.name + SIGNATURE_SUFFIX)


def matches_variant(statement: Path, variant: Path) -> bool:
    """True when the statement's subjects are exactly the variant's files as they are."""
    try:
        digests = subjects(statement)
    except (OSError, DamagedFileError):
        return False
    return digests == {
        f"{variant.name}/{path}": digest for path, digest in file_digests(variant).items()
    }


def matches_sbom(statement: Path, bom: Path) -> bool:
    """True when an SBOM is the one that the statement names, or is not there."""
    if not bom.is_file():
        return True
    try:
        return byproducts(statement).get(bom.name) == sha256_of_file(bom)
    except (OSError, DamagedFileError):
        return False

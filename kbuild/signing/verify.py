"""Verifying signed variants: signature first, then who signed, and only then what it says.

`metadata.json` is not read before its signature is known to be good, as in the `kernels` client.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbuild.digest import differences, unaccounted
from kbuild.errors import DamagedFileError
from kbuild.metadata import METADATA_FILE, MetadataError, read_metadata
from kbuild.provenance.variantfiles import (
    bom_is_told,
    bom_of,
    is_about,
    signature_of,
    statement_of,
)
from kbuild.signing.expected import Expected, Noted, Signer, signer_in
from kbuild.untrusted import read_bytes, reading, reason_of, remembered

if TYPE_CHECKING:
    from sigstore.models import Bundle
    from sigstore.verify import Verifier

_BUNDLE = "a bundle of sigstore"
Told = Literal["none", "unsigned", "signed"]


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """Why something does not count, as a sentence."""


@dataclass(frozen=True)
class Verdict:
    """What became of one variant."""

    variant: str
    problems: tuple[str, ...]
    """Sentences; empty when everything is good."""
    signer: Signer | None = None
    provenance: Told = "none"
    """Whether there is a statement beside it, and whether that is signed."""

    def to_json(self) -> dict[str, Any]:
        """The verdict as a JSON object."""
        return {
            "variant": self.variant,
            "ok": not self.problems,
            "problems": list(self.problems),
            "identity": self.signer.identity if self.signer else None,
            "issuer": self.signer.issuer if self.signer else None,
            "provenance": self.provenance,
        }


@dataclass(frozen=True)
class Verification:
    """Whose word counts."""

    verifier: Verifier
    expected: Expected

    def variant(self, folder: Path) -> Verdict:
        """Verify the variant in a folder, and what lies beside it."""
        told = _told(statement_of(folder))
        strays = tuple(str(stray) for stray in unaccounted(folder))
        try:
            signer = self._metadata(folder)
        except _Refused as refused:
            return Verdict(folder.name, (str(refused), *strays), None, told)
        problems = (*_content(folder), *strays, *self._statement(folder))
        return Verdict(folder.name, problems, signer, told)

    def _metadata(self, folder: Path) -> Signer:
        file = folder / METADATA_FILE
        bundle, data = _bundle(signature_of(file)), _bytes(file)

        def check(noted: Noted) -> None:
            self.verifier.verify_artifact(data, bundle, noted)

        if _signed_digest(signature_of(file)) not in (None, hashlib.sha256(data).digest()):
            raise _Refused(f"`{METADATA_FILE}` was changed after it was signed")
        return self._signer(check, METADATA_FILE)

    def _signer(self, check: Callable[[Noted], None], name: str) -> Signer:
        """Who signed, once the signature is good and by whom it should be."""
        from sigstore.errors import Error, VerificationError

        noted = Noted()
        try:
            check(noted)
        except Error as error:
            raise _Refused(f"the signature of `{name}` does not count: {error}") from error
        signer = signer_in(noted.seen[0])
        try:
            self.expected.policy().verify(noted.seen[0])
        except VerificationError as error:
            words = f"`{name}` was signed by {signer}, not by {self.expected}"
            raise _Refused(words) from error
        return signer

    def _statement(self, folder: Path) -> tuple[str, ...]:
        statement = statement_of(folder)
        if not statement.is_file():
            return ()
        try:
            if signature_of(statement).is_file():
                self._signed_statement(statement)
        except _Refused as refused:
            return (str(refused),)
        if not is_about(statement, folder):
            return (f"`{statement.name}` is about other files than these",)
        if not bom_is_told(statement, bom_of(folder)):
            return (f"`{bom_of(folder).name}` is not the list that `{statement.name}` names",)
        return ()

    def _signed_statement(self, statement: Path) -> None:
        bundle = _bundle(signature_of(statement))
        payloads = []

        def check(noted: Noted) -> None:
            payloads.append(self.verifier.verify_dsse(bundle, noted)[1])

        self._signer(check, statement.name)
        if payloads[0] != _bytes(statement):
            raise _Refused(f"`{statement.name}` was changed after it was signed")


def _told(statement: Path) -> Told:
    if not statement.is_file():
        return "none"
    return "signed" if signature_of(statement).is_file() else "unsigned"


def _content(folder: Path) -> tuple[str, ...]:
    """What the signed metadata and the files disagree about."""
    try:
        metadata = read_metadata(folder)
    except (OSError, MetadataError) as error:
        return (f"`{METADATA_FILE}` is signed, but cannot be read: {error}",)
    if metadata.digest is None:
        return (f"`{METADATA_FILE}` has no digest, so its signature says nothing of the files",)
    return differences(folder, metadata.digest)


def _bundle(path: Path) -> Bundle:
    from sigstore.models import Bundle

    if not path.is_file():
        raise _Refused(f"not signed: there is no `{path.name}`")
    try:
        with reading(path, _BUNDLE):
            return Bundle.from_json(read_bytes(path, _BUNDLE))
    except (OSError, DamagedFileError) as error:
        first = next(iter(reason_of(error).splitlines()), "")
        raise _Refused(f"`{path.name}` is no bundle of sigstore: {first}") from error


def _signed_digest(path: Path) -> bytes | None:
    """SHA-256 of what a bundle says it is about; None where it does not say."""
    return remembered(
        path, lambda told: base64.b64decode(told["messageSignature"]["messageDigest"]["digest"])
    )


def _bytes(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise _Refused(f"`{path.name}` is no file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _Refused(f"`{path.name}` cannot be read: {error.strerror}") from error

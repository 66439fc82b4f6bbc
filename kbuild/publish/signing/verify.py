"""Verifies signed variants: the signature, then who signed, then whether the files match.

`metadata.json` is not read before its signature is known to be good, as in the `kernels` client.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.plan.digest import differences, unaccounted
from kbuild.plan.metadata import METADATA_FILE, MetadataError, read_metadata
from kbuild.publish.signing.sign import bundle_path
from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import read_bytes, read_cache_file, reading, reason_of

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore.models import Bundle
    from sigstore.verify import Verifier


GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
GITHUB = "https://github.com"
# Fulcio's extensions for the issuer of a token: as a string of ASN.1, and as bare text.
_ISSUER, _OLD_ISSUER = "1.3.6.1.4.1.57264.1.8", "1.3.6.1.4.1.57264.1.1"


@dataclass(frozen=True)
class ExpectedSigner:
    """The identity that the certificate must have."""

    identity: str | None = None
    """An e-mail address, or the address of a CI's workflow."""
    issuer: str | None = None
    """Authority that vouched for the identity."""
    repository: str | None = None
    """`OWNER/NAME` on GitHub, whose workflows signed."""

    def policy(self) -> Any:
        """The policy for sigstore's verifier; the same checks as the `kernels` client makes."""
        from sigstore.verify import policy

        wanted: list[Any] = []
        if self.identity:
            wanted.append(policy.Identity(identity=self.identity, issuer=self.issuer))
        if self.repository:
            wanted += [
                policy.OIDCIssuer(GITHUB_ISSUER),
                policy.OIDCIssuerV2(GITHUB_ISSUER),
                policy.OIDCSourceRepositoryURI(f"{GITHUB}/{self.repository}"),
            ]
        return policy.AllOf(wanted)

    def __str__(self) -> str:
        """The signer in a sentence: `a@b.example (issuer)`."""
        parts = [self.identity or "", f"a workflow of {self.repository}" if self.repository else ""]
        named = " in ".join(part for part in parts if part)
        return f"{named} ({self.issuer})" if self.issuer else named


@dataclass
class CertificateRecorder:
    """A policy that everybody meets, and that remembers whose certificate it saw."""

    seen: list[Certificate] = field(default_factory=list)

    def verify(self, cert: Certificate) -> None:
        """Called by sigstore's verifier once the certificate is known to be its own."""
        self.seen.append(cert)


@dataclass(frozen=True)
class CertificateSigner:
    """The signer that a certificate names."""

    identity: str
    issuer: str

    def __str__(self) -> str:
        """The signer in a sentence."""
        return f"{self.identity} ({self.issuer})"


def signer_of_certificate(cert: Certificate) -> CertificateSigner:
    """The identity and the issuer of a certificate of sigstore's."""
    from cryptography import x509

    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    kinds = (x509.RFC822Name, x509.UniformResourceIdentifier)
    identities = [name for kind in kinds for name in names.get_values_for_type(kind)]
    texts = {
        extension.oid.dotted_string: extension.value.value
        for extension in cert.extensions
        if isinstance(extension.value, x509.UnrecognizedExtension)
    }
    # In DER, a short text follows one byte for its kind and one for its length.
    issuer = texts[_ISSUER][2:] if _ISSUER in texts else texts.get(_OLD_ISSUER, b"")
    return CertificateSigner(", ".join(map(str, identities)), issuer.decode("utf-8", "replace"))


_BUNDLE = "a bundle of sigstore"


class _VerificationError(Exception):
    """The reason that something does not count, as a sentence."""


@dataclass(frozen=True)
class SignatureVerdict:
    """The outcome for one variant."""

    variant: str
    problems: tuple[str, ...]
    """Sentences; empty when everything is good."""
    signer: CertificateSigner | None = None

    def to_json(self) -> dict[str, Any]:
        """The verdict as a JSON object."""
        return {
            "variant": self.variant,
            "ok": not self.problems,
            "problems": list(self.problems),
            "identity": self.signer.identity if self.signer else None,
            "issuer": self.signer.issuer if self.signer else None,
        }


@dataclass(frozen=True)
class Verification:
    """The signers that count."""

    verifier: Verifier
    expected: ExpectedSigner

    def variant(self, folder: Path) -> SignatureVerdict:
        """Verify the variant in a folder."""
        strays = tuple(str(stray) for stray in unaccounted(folder))
        try:
            signer = self._metadata(folder)
        except _VerificationError as refused:
            return SignatureVerdict(folder.name, (str(refused), *strays))
        return SignatureVerdict(folder.name, (*_content_problems(folder), *strays), signer)

    def _metadata(self, folder: Path) -> CertificateSigner:
        """The signer of the metadata, once the signature is good and by the right one."""
        from sigstore.errors import Error, VerificationError

        bundle_file = bundle_path(folder)
        bundle, data = _read_bundle(bundle_file), _read_file(folder / METADATA_FILE)
        if _signed_digest(bundle_file) not in (None, hashlib.sha256(data).digest()):
            raise _VerificationError(f"`{METADATA_FILE}` was changed after it was signed")
        noted = CertificateRecorder()
        try:
            self.verifier.verify_artifact(data, bundle, noted)
        except Error as error:
            message = f"the signature of `{METADATA_FILE}` is not valid: {error}"
            raise _VerificationError(message) from error
        signer = signer_of_certificate(noted.seen[0])
        try:
            self.expected.policy().verify(noted.seen[0])
        except VerificationError as error:
            message = f"`{METADATA_FILE}` was signed by {signer}, not by {self.expected}"
            raise _VerificationError(message) from error
        return signer


def _content_problems(folder: Path) -> tuple[str, ...]:
    """The differences between the signed metadata and the files."""
    try:
        metadata = read_metadata(folder)
    except (OSError, MetadataError) as error:
        return (f"`{METADATA_FILE}` is signed, but cannot be read: {error}",)
    if metadata.digest is None:
        return (f"`{METADATA_FILE}` has no digest, so its signature does not cover the files",)
    return differences(folder, metadata.digest)


def _read_bundle(path: Path) -> Bundle:
    from sigstore.models import Bundle

    if not path.is_file():
        raise _VerificationError(f"not signed: there is no `{path.name}`")
    try:
        with reading(path, _BUNDLE):
            return Bundle.from_json(read_bytes(path, _BUNDLE))
    except (OSError, DamagedFileError) as error:
        first = next(iter(reason_of(error).splitlines()), "")
        raise _VerificationError(f"`{path.name}` is not a bundle of sigstore: {first}") from error


def _signed_digest(path: Path) -> bytes | None:
    """SHA-256 of what a bundle says it is about; None where it does not say."""
    return read_cache_file(
        path,
        lambda document: base64.b64decode(document["messageSignature"]["messageDigest"]["digest"]),
    )


def _read_file(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise _VerificationError(f"`{path.name}` is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _VerificationError(f"`{path.name}` cannot be read: {error.strerror}") from error

"""By whom a variant should be signed, and by whom it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
GITHUB = "https://github.com"
# Fulcio's extensions for the issuer of a token: as a string of ASN.1, and as bare text.
_ISSUER, _OLD_ISSUER = "1.3.6.1.4.1.57264.1.8", "1.3.6.1.4.1.57264.1.1"


@dataclass(frozen=True)
class Expected:
    """What the certificate must say."""

    identity: str | None = None
    """An e-mail address, or the address of a CI's workflow."""
    issuer: str | None = None
    """Who vouched for the identity."""
    repository: str | None = None
    """`OWNER/NAME` on GitHub, whose workflows signed."""

    def policy(self) -> Any:
        """For sigstore's verifier; the same checks as the `kernels` client makes."""
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
        """For sentences: `a@b.example (issuer)`."""
        parts = [self.identity or "", f"a workflow of {self.repository}" if self.repository else ""]
        named = " in ".join(part for part in parts if part)
        return f"{named} ({self.issuer})" if self.issuer else named


@dataclass
class Noted:
    """A policy that everybody meets, and that remembers whose certificate it saw."""

    seen: list[Certificate] = field(default_factory=list)

    def verify(self, cert: Certificate) -> None:
        """Called by sigstore's verifier once the certificate is known to be its own."""
        self.seen.append(cert)


@dataclass(frozen=True)
class Signer:
    """Whom a certificate names."""

    identity: str
    issuer: str

    def __str__(self) -> str:
        """For sentences."""
        return f"{self.identity} ({self.issuer})"


def signer_in(cert: Certificate) -> Signer:
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
    issuer = texts[_ISSUER][2:] if _ISSUER in texts else texts.get(_OLD_ISSUER, b"")
    return Signer(", ".join(map(str, identities)), issuer.decode("utf-8", "replace"))

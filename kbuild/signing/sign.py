"""Signing what is built: `metadata.json`, which holds the files' digests, and provenance."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.digest import differences, refuse_unaccounted
from kbuild.errors import CheckError, SigningError
from kbuild.fileset import replace_atomically
from kbuild.metadata import METADATA_FILE, MetadataError, read_metadata
from kbuild.provenance.variantfiles import is_about, signature_of, statement_of
from kbuild.signing.instance import in_words, require_sigstore

if TYPE_CHECKING:
    from sigstore.models import Bundle, ClientTrustConfig
    from sigstore.oidc import IdentityToken
    from sigstore.sign import Signer

_WAYS = (
    "in CI, let the job ask for tokens (GitHub: `permissions: id-token: write`); elsewhere run "
    "this in a terminal with a browser, or give --identity-token or SIGSTORE_IDENTITY_TOKEN"
)


def identity_token(given: str | None) -> IdentityToken | None:
    """The token that is given, else the CI's own; None where there is neither.

    Raises:
        SigningError: it is none that sigstore takes, or the CI does not give it.
    """
    require_sigstore()
    from sigstore.oidc import IdentityToken, detect_credential

    with in_words("no identity to sign with", hint=_WAYS):
        raw = given or os.environ.get("SIGSTORE_IDENTITY_TOKEN") or detect_credential()
        return IdentityToken(raw) if raw else None


def refuse_without_user(*, interactive: bool) -> None:
    """Without a token somebody has to be asked.

    Raises:
        SigningError: nobody is there.
    """
    if not interactive:
        raise SigningError("no identity to sign with: nobody is here to ask", hint=_WAYS)


def ask_for_token(config: ClientTrustConfig) -> IdentityToken:
    """Let the user say who signs, through a browser.

    Raises:
        SigningError: the user did not, or cannot be asked.
    """
    from sigstore.oidc import Issuer

    with in_words("no identity to sign with", hint=_WAYS):
        return Issuer(config.signing_config.get_oidc_url()).identity_token()


@contextmanager
def signer_of(config: ClientTrustConfig, token: IdentityToken) -> Iterator[Signer]:
    """Signs for a few minutes; the key exists only here and is thrown away.

    Raises:
        SigningError: sigstore gives no certificate.
    """
    from sigstore.sign import SigningContext

    with ExitStack() as stack:
        with in_words("sigstore gave no certificate"):
            context = SigningContext.from_trust_config(config)
            signer = stack.enter_context(context.signer(token))
        yield signer


def refuse_untrue(variant: Path) -> Mapping[str, bool]:
    """Look at what would be signed; answers which of its sources were dirty.

    Raises:
        CheckError: `metadata.json` is missing, broken, or not about everything beside it.
    """
    try:
        metadata = read_metadata(variant)
    except (OSError, MetadataError) as error:
        raise CheckError(f"`{variant.name}` cannot be signed: {error}", ()) from error
    if metadata.digest is None:
        raise CheckError(f"`{variant.name}` has no digest", (), hint="`kbuild hash` records it")
    wrong = differences(variant, metadata.digest)
    if wrong:
        listed = "".join(f"\n    {sentence}" for sentence in wrong)
        hint = "build it again; `kbuild hash` takes the files as they are"
        raise CheckError(f"`{variant.name}` is not what was built:{listed}", (), hint=hint)
    refuse_unaccounted(variant)
    made = metadata.provenance
    states = {"kernel": made.kernel, "kbuild": made.builder.git} if made else {}
    return {name: bool(state and state.dirty) for name, state in states.items()}


def sign_variant(variant: Path, signer: Signer) -> tuple[Path, ...]:
    """Sign a variant and, where there is one, its provenance; returns the bundles' paths.

    Raises:
        CheckError: the provenance is not about these files.
        SigningError: sigstore did not sign.
    """
    from sigstore.dsse import Statement

    statement = statement_of(variant)
    if statement.is_file() and not is_about(statement, variant):
        raise CheckError(
            f"`{statement.name}` is not about the files of `{variant.name}`",
            (),
            hint="`kbuild build --provenance` writes it anew",
        )
    written = [_bundle_of(variant)]
    with in_words("sigstore did not sign"):
        _write(written[0], signer.sign_artifact((variant / METADATA_FILE).read_bytes()))
        if statement.is_file():
            written.append(signature_of(statement))
            _write(written[1], signer.sign_dsse(Statement(statement.read_bytes())))
    return tuple(written)


def _bundle_of(variant: Path) -> Path:
    return signature_of(variant / METADATA_FILE)


def _write(target: Path, bundle: Bundle) -> None:
    replace_atomically(target, bundle.to_json().encode(), durable=True)

"""Signs the `metadata.json` of a variant with an instance of sigstore."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.plan.digest import differences, validate_accounted
from kbuild.plan.metadata import METADATA_FILE, MetadataError, read_metadata
from kbuild.system.errors import (
    CheckError,
    KbuildError,
    SigningError,
    UsageError,
    error_chain,
    install_command,
)
from kbuild.system.files import replace_atomically

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.oidc import IdentityToken
    from sigstore.sign import Signer


NEEDS_NETWORK = "signing needs a network: sigstore gives the certificate and keeps the log"
OFFLINE = "--offline takes the keys of the last time, or those that came with the library"


@dataclass(frozen=True)
class SigstoreInstance:
    """Names of an instance on the command line."""

    trust_config: Path | None = None
    """File with a client's trust configuration; the public instance when None."""
    staging: bool = False
    offline: bool = False
    """Use the keys that are on this machine or came with the library, without a look for newer."""

    def open(self, *, hint: str = OFFLINE) -> ClientTrustConfig:
        """The instance's keys and addresses.

        Raises:
            SigningError: sigstore is not installed, or its keys cannot be fetched.
            UsageError: the file is not a trust configuration.
        """
        require_sigstore()
        from sigstore.models import ClientTrustConfig

        if self.trust_config is not None:
            return _read_trust_config(self.trust_config)
        fetch = ClientTrustConfig.staging if self.staging else ClientTrustConfig.production
        with signing_errors("sigstore's keys cannot be fetched", hint=hint):
            return fetch(offline=self.offline)


def require_sigstore() -> None:
    """Say how to get the library when it is not there.

    Raises:
        SigningError: it is not.
    """
    if importlib.util.find_spec("sigstore") is None:
        raise SigningError("sigstore is not installed", hint=install_command("sigstore>=4.1,<5"))
    logging.getLogger("sigstore").addHandler(logging.NullHandler())  # what matters is raised


@contextmanager
def signing_errors(what: str, *, hint: str = NEEDS_NETWORK) -> Iterator[None]:
    """Turn what sigstore's clients raise into a `SigningError`; their own errors are private."""
    try:
        yield
    except KbuildError:
        raise
    except Exception as error:
        raise SigningError(f"{what}: {_error_text(error)}", hint=hint) from error


def _error_text(error: BaseException) -> str:
    """The error's own words and those of its first cause, which often has better ones."""
    *_, first_cause = error_chain(error)
    texts = [str(cause).strip() or type(cause).__name__ for cause in (error, first_cause)]
    return "; ".join(dict.fromkeys(texts))


def _read_trust_config(path: Path) -> ClientTrustConfig:
    from sigstore.errors import Error
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, Error) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"`{path}` is not a trust configuration of sigstore: {first}",
            hint="--trust-config takes a ClientTrustConfig as JSON",
        ) from error


_IDENTITY_HINT = (
    "in CI, let the job ask for tokens (GitHub: `permissions: id-token: write`); elsewhere run "
    "this in a terminal with a browser, or give --identity-token or SIGSTORE_IDENTITY_TOKEN"
)


def identity_token(token: str | None) -> IdentityToken | None:
    """The token that is given, else the CI's own; None where there is neither.

    Raises:
        SigningError: it is none that sigstore takes, or the CI does not give it.
    """
    require_sigstore()
    from sigstore.oidc import IdentityToken, detect_credential

    with signing_errors("no identity to sign with", hint=_IDENTITY_HINT):
        raw = token or os.environ.get("SIGSTORE_IDENTITY_TOKEN") or detect_credential()
        return IdentityToken(raw) if raw else None


def require_user(*, interactive: bool) -> None:
    """Require a terminal on which the user can be asked, where there is no token.

    Raises:
        SigningError: there is no terminal.
    """
    if not interactive:
        raise SigningError(
            "no identity to sign with, and no terminal to ask on", hint=_IDENTITY_HINT
        )


def ask_for_token(config: ClientTrustConfig) -> IdentityToken:
    """Let the user say who signs, through a browser.

    Raises:
        SigningError: the user did not, or cannot be asked.
    """
    from sigstore.oidc import Issuer

    with signing_errors("no identity to sign with", hint=_IDENTITY_HINT):
        return Issuer(config.signing_config.get_oidc_url()).identity_token()


@contextmanager
def open_signer(config: ClientTrustConfig, token: IdentityToken) -> Iterator[Signer]:
    """Signs for a few minutes; the key exists only here and is thrown away.

    Raises:
        SigningError: sigstore gives no certificate.
    """
    from sigstore.sign import SigningContext

    with ExitStack() as stack:
        with signing_errors("sigstore gave no certificate"):
            context = SigningContext.from_trust_config(config)
            signer = stack.enter_context(context.signer(token))
        yield signer


def check_before_signing(variant: Path) -> Mapping[str, bool]:
    """Check the files that would be signed; return which of the sources were dirty.

    Raises:
        CheckError: `metadata.json` is missing, broken, or not about everything beside it.
    """
    try:
        metadata = read_metadata(variant)
    except (OSError, MetadataError) as error:
        raise CheckError(f"`{variant.name}` cannot be signed: {error}", ()) from error
    if metadata.digest is None:
        raise CheckError(
            f"`{variant.name}` has no digest", (), hint="`kbuild sign --hash` records it"
        )
    wrong = differences(variant, metadata.digest)
    if wrong:
        listed = "".join(f"\n    {sentence}" for sentence in wrong)
        hint = "build it again; `kbuild sign --hash` takes the files as they are"
        raise CheckError(f"`{variant.name}` is not what was built:{listed}", (), hint=hint)
    validate_accounted(variant)
    provenance = metadata.provenance
    states = {"kernel": provenance.kernel, "kbuild": provenance.builder.git} if provenance else {}
    return {name: bool(state and state.dirty) for name, state in states.items()}


def bundle_path(variant: Path) -> Path:
    """The file of a variant's signature."""
    return variant / f"{METADATA_FILE}.sigstore"


def sign_variant(variant: Path, signer: Signer) -> Path:
    """Sign a variant; returns the bundle's path.

    Raises:
        SigningError: sigstore did not sign.
    """
    bundle = bundle_path(variant)
    with signing_errors("sigstore did not sign"):
        signed = signer.sign_artifact((variant / METADATA_FILE).read_bytes())
    replace_atomically(bundle, signed.to_json().encode(), durable=True)
    return bundle

"""Which sigstore: whose certificates count, and who is asked for one."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.errors import KbuildError, SigningError, UsageError

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig

NEEDS_NETWORK = "signing needs a network: sigstore gives the certificate and keeps the log"
OFFLINE = "--offline takes the keys of the last time, or those that came with the library"


@dataclass(frozen=True)
class Instance:
    """How an instance is named on the command line."""

    trust_config: Path | None = None
    """File with a client's trust configuration; the public instance when None."""
    staging: bool = False
    """sigstore's public instance for trying things out."""
    offline: bool = False
    """Use the keys that are on this machine or came with the library, without a look for newer."""

    def open(self, *, hint: str = OFFLINE) -> ClientTrustConfig:
        """The instance's keys and addresses.

        Args:
            hint: what to do without a network.

        Raises:
            SigningError: sigstore is not installed, or its keys cannot be fetched.
            UsageError: the file is no trust configuration.
        """
        require_sigstore()
        from sigstore.models import ClientTrustConfig

        if self.trust_config is not None:
            return _read(self.trust_config)
        fetch = ClientTrustConfig.staging if self.staging else ClientTrustConfig.production
        with in_words("sigstore's keys cannot be fetched", hint=hint):
            return fetch(offline=self.offline)


def require_sigstore() -> None:
    """Say how to get the library when it is not there.

    Raises:
        SigningError: it is not.
    """
    if importlib.util.find_spec("sigstore") is None:
        raise SigningError("sigstore is not installed", hint="pip install 'kbuild[sign]'")
    logging.getLogger("sigstore").addHandler(logging.NullHandler())  # what matters is raised


@contextmanager
def in_words(what: str, *, hint: str = NEEDS_NETWORK) -> Iterator[None]:
    """Turn what sigstore's clients raise into a `SigningError`; their own errors are private."""
    try:
        yield
    except KbuildError:
        raise
    except Exception as error:
        raise SigningError(f"{what}: {_reason(error)}", hint=hint) from error


def _reason(error: BaseException) -> str:
    """The error's own words and those of its first cause, which often has better ones."""
    first = last = error
    while last.__cause__ or last.__context__:
        last = last.__cause__ or last.__context__ or last
    words = [str(cause).strip() or type(cause).__name__ for cause in (first, last)]
    return "; ".join(dict.fromkeys(words))


def _read(path: Path) -> ClientTrustConfig:
    from sigstore.errors import Error
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, Error) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"`{path}` is no trust configuration of sigstore: {first}",
            hint="--trust-config takes a ClientTrustConfig as JSON",
        ) from error

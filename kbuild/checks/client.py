"""The `kernels` client loads variants of a fixed list of backends, and rejects all others.

A backend that another distribution adds to kbuild can be built, checked and tested; users of the
public client cannot load it. An author whose users have a client of their own overrules this check.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.backends import BACKENDS
from kbuild.checks.base import CHECKS, Finding, MetadataFileCheck, Output
from kbuild.checks.libraries import metadata_of
from kbuild.plan.metadata import METADATA_FILE

HINT = (
    'leave the backend out; if your users have a client that knows it, write `client = "<reason>"` '
    "under `[allow]` in kbuild.toml"
)


def unloadable_reason(backend: str) -> str:
    """The reason that users of the public client cannot load the variants; empty when they can."""
    known = BACKENDS.find(backend)
    if known is not None and known.in_client:
        return ""
    return (
        f"the `kernels` client does not support the backend `{backend}`, so its users cannot "
        "load the variant"
    )


def check_backend(backend: str, where: str) -> Iterator[Finding]:
    """One finding on a backend that the client does not know."""
    if reason := unloadable_reason(backend):
        yield Finding(ClientCheck.name, "error", where, reason, HINT)


@CHECKS.add
class ClientCheck(MetadataFileCheck):
    """Checks the backend alone; `metadata-client` asks the client about the rest."""

    name = "client"
    summary = "The `kernels` client knows the backend."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding on a backend that the client does not know."""
        metadata = metadata_of(output)
        if metadata is not None:
            yield from check_backend(metadata.backend, METADATA_FILE)

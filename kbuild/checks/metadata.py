"""`metadata.json` says what the client needs, and says the truth about the files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from keyword import iskeyword

from kbuild.backends import BACKENDS
from kbuild.checks.base import CHECKS, Finding, MetadataFileCheck, Output
from kbuild.plan.digest import differences
from kbuild.plan.metadata import METADATA_FILE, Metadata, MetadataError, read_metadata

Fault = tuple[str, str]


@CHECKS.add
class MetadataCheck(MetadataFileCheck):
    """Identifiers, archs, backend and digest."""

    name = "metadata"
    summary = f"`{METADATA_FILE}` is complete, agrees with the variant, and its digest is right."
    protects = True

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per fault."""
        try:
            metadata = read_metadata(output.root)
        except MetadataError as error:
            for problem in error.problems:
                yield self._error(problem, "the `kernels` client would reject the variant")
        else:
            for what, hint in _faults(metadata, output):
                yield self._error(what, hint)

    def _error(self, what: str, hint: str) -> Finding:
        return Finding(self.name, "error", METADATA_FILE, what, hint)


def _faults(metadata: Metadata, output: Output) -> Iterator[Fault]:
    for key, value in (("id", metadata.id), ("name", metadata.python_name)):
        if not value.isidentifier() or iskeyword(value):
            yield f"`{key}`: `{value}` is not a Python identifier", "use letters, digits and `_`"
    yield from _archs(metadata)
    variant = output.variant
    if variant is not None and not variant.is_legacy and metadata.backend != variant.backend:
        what = f"`backend.type` is `{metadata.backend}`, but the variant is for {variant.backend}"
        yield what, "build again: the two are written from the same plan"
    if metadata.digest is None:
        yield "`digest` is missing", "add it with `kbuild sign --hash`"
        return
    for difference in differences(output.root, metadata.digest):
        yield difference, "compute it last, with `kbuild sign --hash`"


def _archs(metadata: Metadata) -> Iterator[Fault]:
    """The client compares them with the device before it loads a kernel from the Hub."""
    backend = BACKENDS.find(metadata.backend)
    for arch in metadata.archs or ():
        if backend is None:
            return  # `client` reports it
        if backend.arch_key is None:
            what = f"`backend.archs` has `{arch}`, but {metadata.backend} has no archs"
            yield what, "leave `archs` out"
            continue
        try:
            backend.check_arch(arch)
        except ValueError as error:
            hint = str(error).partition("; ")[2]
            yield f"`backend.archs` has `{arch}`, which is not an arch", hint

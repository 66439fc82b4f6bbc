"""Any source of toolchains, and the header dependencies on top of what it provides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbuild.plan import Requirements, ToolchainSummary
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.sources.search import HeaderSources
from kbuild.toolchains.sources.tree import HeaderSource
from kbuild.version import Version


@dataclass(frozen=True)
class WithHeaders(ToolchainSource):
    """The compilers of `inner`; the headers of `headers`."""

    inner: ToolchainSource
    headers: HeaderSources

    name = "headers"

    def refuses(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.refuses`."""
        names, compiler = requires.libraries, _compiler(requires)
        return self.inner.refuses(_compilers_only(requires)) or (
            self.headers.refuses(names, compiler) if names else None
        )

    def preview(self, requires: Requirements) -> ToolchainSummary:
        """See `ToolchainSource.preview`; without a fingerprint where there are headers."""
        summary = self.inner.preview(_compilers_only(requires))
        if not requires.libraries:
            return summary
        found = self.headers.expected(requires.libraries, _compiler(requires))
        return replace(summary, versions=(*summary.versions, *versions(found)), fingerprint="")

    def compiler(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.compiler`."""
        return self.inner.compiler(_compilers_only(requires))

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        toolchain = self.inner.provision(_compilers_only(requires))
        if not requires.libraries:
            return toolchain
        found = self.headers.resolve(requires.libraries, _compiler(requires))
        return replace(
            toolchain,
            cache=(*toolchain.cache, *cache_entries(found)),
            headers=versions(found),
            store=toolchain.store or self.headers.store.root,
        )


def cache_entries(found: Sequence[HeaderSource]) -> tuple[tuple[str, str], ...]:
    """What generated projects read."""
    return tuple(
        (source.fact, ";".join(str(folder) for folder in source.include_dirs)) for source in found
    )


def versions(found: Sequence[HeaderSource]) -> tuple[tuple[str, str], ...]:
    """For the record and the fingerprint: release, and where it came from."""
    return tuple((source.name, f"{source.version} ({source.origin})") for source in found)


def _compilers_only(requires: Requirements) -> Requirements:
    return replace(requires, libraries=())


def _compiler(requires: Requirements) -> Version | None:
    return Version.parse(requires.toolkit) if requires.toolkit else None

"""One version of a kernel: its files with their hashes, and a way to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Protocol

from kbuild.hub.layout import BUILD, variant_of
from kbuild.hub.published import size_of, variants_of
from kbuild.hub.values import RemoteFile, Tree
from kbuild.metadata import METADATA_FILE, Metadata, MetadataError, parse
from kbuild.scratch import scratch_folder
from kbuild.surface import Surface, read_surface

_AT_ONCE = 4


def _undated() -> Mapping[str, datetime]:
    return {}


@dataclass(frozen=True)
class Version:
    """A version on the Hub, in a mirror, or just built."""

    kernel: str
    """`owner/name`, or the name alone of what was just built."""
    name: str
    """`v1`."""
    files: Tree
    read: Callable[[str], bytes] = field(repr=False, compare=False)
    """A file's content by path; raises `HubError`."""
    has_all: bool = True
    """False where what belongs to no variant is not known, as beside a folder of variants."""
    dates: Callable[[], Mapping[str, datetime]] = field(default=_undated, repr=False, compare=False)
    """When each variant came to be as it is, as far as that is known; raises `HubError`."""

    def only(self, globs: Sequence[str]) -> Version:
        """Without the variants that match none of the globs; all of it without globs."""
        if not globs:
            return self
        return replace(self, files={p: f for p, f in self.files.items() if _is_wanted(p, globs)})

    @property
    def variants(self) -> tuple[str, ...]:
        """Those that a client can load, by name."""
        return tuple(sorted(variants_of(self.files)))

    def size(self, *variants: str) -> int:
        """Bytes of some variants, of all without any."""
        return size_of(self.files, variants or self.variants)

    @cached_property
    def metadata(self) -> Mapping[str, Metadata | None]:
        """What each variant says of itself; None where that cannot be read."""
        if not self.variants:
            return {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(self.variants, pool.map(self._metadata, self.variants), strict=True))

    def _metadata(self, variant: str) -> Metadata | None:
        try:
            return parse(self.read(f"{BUILD}/{variant}/{METADATA_FILE}"))
        except MetadataError:
            return None


class Source(Protocol):
    """Where versions of one kernel are."""

    @property
    def title(self) -> str:
        """How a person would name it, without credentials."""
        ...

    def names(self) -> tuple[str, ...]:
        """The versions, oldest first; raises `HubError`."""
        ...

    def version(self, name: str) -> Version:
        """One of them, or whatever else the source knows by that name.

        Raises:
            UsageError: there is none.
            HubError: nobody answers.
        """
        ...


def _is_wanted(path: str, globs: Sequence[str]) -> bool:
    name = variant_of(path)
    return not name or any(fnmatchcase(name, glob) for glob in globs)


def surface_of(version: Version) -> Surface | None:
    """What a version's Python package offers; None when it has no variant.

    Raises:
        SurfaceError: it cannot be read.
        HubError: nobody answers.
    """
    variant = min(version.variants, default="")
    if not variant:
        return None
    made = version.metadata[variant]
    top = f"{BUILD}/{variant}/"
    with scratch_folder("version") as scratch:
        for path in version.files:
            if path.startswith(top) and path.endswith(".py"):
                file = scratch / path.removeprefix(top)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(version.read(path))
        return read_surface(scratch, made.python_name if made else "")


def python_files(version: Version) -> dict[str, RemoteFile]:
    """The Python files of the variant that `surface_of` reads, without what builds generate."""
    top = f"{BUILD}/{min(version.variants, default='')}/"
    found = {path.removeprefix(top): f for path, f in version.files.items() if path.startswith(top)}
    return {path: f for path, f in found.items() if path.endswith(".py") and path != "_ops.py"}


def is_same(one: RemoteFile | None, other: RemoteFile | None) -> bool:
    """True when two files have the same content; what only one side knows proves nothing."""
    if one is None or other is None:
        return one is other
    if one.sha256 and other.sha256:
        return one.sha256 == other.sha256
    return one.blob == other.blob


def of_variant(files: Tree, variant: str) -> dict[str, RemoteFile]:
    """The files of a variant, and those beside it, by path."""
    return {path: file for path, file in files.items() if variant_of(path) == variant}

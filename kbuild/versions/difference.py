"""Compares two versions of a kernel: interface, variants, metadata and files.

A version is a guarantee to those who load it: `get_kernel(..., version=1)` keeps working whatever
is published as version 1 later. So its number must be raised when a call breaks, and when
something new would be in some variants of the version and not in others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from kbuild.hub.layout import CHARTS, README, variant_of
from kbuild.hub.preflight import format_size
from kbuild.hub.repository import RemoteFiles
from kbuild.metadata import Metadata
from kbuild.public_api.compare import ApiChange, compare_apis
from kbuild.public_api.model import PublicApiError
from kbuild.versions.sources import (
    KernelVersion,
    files_of_variant,
    has_same_content,
    public_api_of,
    python_files,
)

_NUMBERED = re.compile(r"v(\d{1,9})")


@dataclass(frozen=True)
class VersionBump:
    """The question."""

    state: Literal["none", "needed", "done"]
    reason: str = ""
    old: int | None = None
    new: int | None = None
    """Numbers of the two versions, where their names say them."""

    def to_json(self) -> dict[str, Any]:
        """The answer as a JSON object."""
        wanted = self.old + 1 if self.state == "needed" and self.old is not None else None
        return {"bump": self.state, "reason": self.reason or None, "at_least": wanted}

    def __str__(self) -> str:
        if self.state == "done":
            return f"the version was raised from {self.old} to {self.new}: {self.reason}"
        if self.state == "needed":
            asked = "another number" if self.old is None else f"at least {self.old + 1}"
            return f"the version must be raised to {asked}: {self.reason}"
        return "no new version is needed"


def required_bump(
    interface: Sequence[ApiChange], old: KernelVersion, new: KernelVersion
) -> VersionBump:
    """What the changes of the interface from one version to the next ask for."""
    reason = _bump_reason(interface, old, new)
    numbers = _version_number(old), _version_number(new)
    if not reason:
        return VersionBump("none", "", *numbers)
    before, after = numbers
    if before is not None and after is not None and after > before:
        return VersionBump("done", reason, before, after)
    return VersionBump("needed", reason, before, after)


def _bump_reason(interface: Sequence[ApiChange], old: KernelVersion, new: KernelVersion) -> str:
    breaking = [change for change in interface if change.breaking]
    if breaking:
        more = f", and {len(breaking) - 1} more" if len(breaking) > 1 else ""
        return f"{breaking[0]}{more}, which breaks callers"
    added = [change for change in interface if change.kind == "added"]
    without = [name for name in old.variants if name not in new.variants]
    if added and without:
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        return f"{added[0]}, and {without[0]}{more} would stay without it"
    return ""


def _version_number(version: KernelVersion) -> int | None:
    match = _NUMBERED.fullmatch(version.name)
    if match:
        return int(match[1])
    numbers = {metadata.version for metadata in version.metadata.values() if metadata}
    return numbers.pop() if len(numbers) == 1 else None


ChangeKind = Literal["added", "removed", "changed"]
_COMMIT_DIGITS = 10
_REPOSITORY_FILES = (README, ".gitattributes", ".gitignore")


@dataclass(frozen=True)
class MetadataChange:
    """Something that a variant says of itself, before and after."""

    name: str
    """`archs`, `toolchain`, `licence`, ..."""
    before: str
    after: str


@dataclass(frozen=True)
class FileChange:
    """One file."""

    kind: ChangeKind
    path: str
    before: int | None
    """Bytes; None when it was not there."""
    after: int | None


@dataclass(frozen=True)
class VariantChange:
    """One variant."""

    kind: ChangeKind
    name: str
    before: int | None
    """Bytes of all its files."""
    after: int | None
    files: tuple[FileChange, ...] = ()
    """Of a variant that both have."""
    facts: tuple[MetadataChange, ...] = ()


@dataclass(frozen=True)
class VersionDifference:
    """Everything that differs."""

    old: str
    new: str
    """The two, as a person would name them."""
    interface: tuple[ApiChange, ...]
    unread: str
    """Why the interfaces could not be compared; empty when they were."""
    bump: VersionBump
    variants: tuple[VariantChange, ...]
    unchanged: tuple[str, ...]
    """Variants without a difference."""
    others: tuple[FileChange, ...]
    """Files that belong to no variant."""

    def __bool__(self) -> bool:
        return bool(self.interface or self.variants or self.others)

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object."""
        return {
            "old": self.old,
            "new": self.new,
            "different": bool(self),
            "interface": [change.to_json() for change in self.interface],
            "interface_problem": self.unread or None,
            "version": self.bump.to_json(),
            "variants": [asdict(change) for change in self.variants],
            "unchanged": list(self.unchanged),
            "others": [asdict(change) for change in self.others],
        }


def variant_changes(old: KernelVersion, new: KernelVersion) -> tuple[VariantChange, ...]:
    """Those that are new, gone or different, by name.

    Raises:
        HubError: metadata has to be fetched, and cannot be.
    """
    names = sorted({*old.variants, *new.variants})
    return tuple(
        change for name in names if (change := _variant_change(name, old, new)) is not None
    )


def other_changes(old: RemoteFiles, new: RemoteFiles) -> tuple[FileChange, ...]:
    """Files of no variant, by path. The card is left out: it is made from the others."""
    parts = ({path: f for path, f in tree.items() if _is_other_file(path)} for tree in (old, new))
    return tuple(_file_changes(*parts))


def _is_other_file(path: str) -> bool:
    return not (variant_of(path) or path in _REPOSITORY_FILES or fnmatchcase(path, CHARTS))


def _variant_change(name: str, old: KernelVersion, new: KernelVersion) -> VariantChange | None:
    if name not in old.variants:
        return VariantChange("added", name, None, new.size(name))
    if name not in new.variants:
        return VariantChange("removed", name, old.size(name), None)
    files = tuple(
        _file_changes(files_of_variant(old.files, name), files_of_variant(new.files, name))
    )
    if not files:
        return None
    facts = tuple(_metadata_changes(old.metadata[name], new.metadata[name]))
    return VariantChange("changed", name, old.size(name), new.size(name), files, facts)


def _file_changes(old: RemoteFiles, new: RemoteFiles) -> Iterator[FileChange]:
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if not has_same_content(before, after):
            kind: ChangeKind = (
                "added" if before is None else "removed" if after is None else "changed"
            )
            yield FileChange(
                kind, path, before.size if before else None, after.size if after else None
            )


def _metadata_changes(old: Metadata | None, new: Metadata | None) -> Iterator[MetadataChange]:
    before, after = describe_metadata(old), describe_metadata(new)
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, "") != after.get(name, ""):
            yield MetadataChange(name, before.get(name, ""), after.get(name, ""))


def describe_metadata(metadata: Metadata | None) -> Mapping[str, str]:
    """The metadata of a variant as text; each part of a toolchain separately."""
    if metadata is None:
        return {}
    provenance = metadata.provenance
    facts = {
        "version": str(metadata.version),
        "licence": metadata.license,
        "archs": " ".join(metadata.archs or ()),
        "python-depends": " ".join(metadata.python_depends),
        "kernel-depends": " ".join(need.repo_id for need in metadata.kernel_depends),
        "kernels-minver": metadata.kernels_minver or "",
        "upstream": metadata.upstream or "",
        "source": metadata.source or "",
    }
    if provenance and provenance.kernel:
        dirty = " with changes" if provenance.kernel.dirty else ""
        facts["commit"] = f"{provenance.kernel.commit[:_COMMIT_DIGITS]}{dirty}"
    if provenance:
        used = provenance.builder.toolchain
        facts["builder"] = f"{provenance.builder.name} {provenance.builder.version}"
        facts["toolchain"] = used.source if used else ""
        facts |= {f"toolchain {name}": v for name, v in (used.versions if used else {}).items()}
    return facts


def compare_versions(
    old: KernelVersion, new: KernelVersion, *, titles: tuple[str, str]
) -> VersionDifference:
    """Everything that differs.

    Raises:
        HubError: files have to be fetched for it, and cannot be.
    """
    interface, unread = interface_changes(old, new)
    return VersionDifference(
        *titles,
        interface,
        unread,
        required_bump(interface, old, new),
        variants := variant_changes(old, new),
        _unchanged_variants(old, new, {change.name for change in variants}),
        other_changes(old.files, new.files) if old.has_all and new.has_all else (),
    )


def interface_changes(old: KernelVersion, new: KernelVersion) -> tuple[tuple[ApiChange, ...], str]:
    """How the Python packages differ, or why this is unknown.

    Raises:
        HubError: files have to be fetched for it, and cannot be.
    """
    before, after = python_files(old), python_files(new)
    if (
        before
        and before.keys() == after.keys()
        and all(has_same_content(before[p], after[p]) for p in after)
    ):
        return (), ""
    surfaces = []
    for version in (old, new):
        try:
            surface = public_api_of(version)
        except PublicApiError as error:
            return (), f"{version.kernel}@{version.name}: {error.message}"
        if surface is None:
            return (), f"{version.kernel}@{version.name} has no variant"
        surfaces.append(surface)
    return compare_apis(*surfaces), ""


def _unchanged_variants(
    old: KernelVersion, new: KernelVersion, changed: set[str]
) -> tuple[str, ...]:
    return tuple(n for n in old.variants if n in new.variants and n not in changed)


CHANGE_MARKS = {"added": "+", "removed": "-", "changed": "~"}
_MAX_FILES_LISTED = 6
_MIN_VARIANTS_SHARING = 2
"""Changed variants from which on what they share is said once."""


def difference_lines(difference: VersionDifference, *, everything: bool = False) -> Iterator[str]:
    """The difference, for people."""
    yield f"{difference.old} -> {difference.new}"
    if not difference:
        yield "  no difference"
        return
    yield from _interface_lines(difference)
    yield from _variant_lines(difference, everything=everything)
    if difference.others:
        yield "  other files"
        yield from (f"    {_file_line(change)}" for change in difference.others)


def _interface_lines(difference: VersionDifference) -> Iterator[str]:
    yield "  interface"
    for change in difference.interface:
        breaks = " (breaks callers)" if change.breaking else ""
        yield f"    {CHANGE_MARKS[change.kind]} {change}{breaks}"
    if difference.unread:
        yield f"    not compared: {difference.unread}"
    elif not difference.interface:
        yield "    no difference"
    if not difference.unread:
        yield f"    {difference.bump}"


def _variant_lines(difference: VersionDifference, *, everything: bool) -> Iterator[str]:
    if not (difference.variants or difference.unchanged):
        return
    yield "  variants"
    shared = _shared_changes(difference.variants)
    for change in difference.variants:
        size = _size_change(change.before, change.after)
        yield f"    {CHANGE_MARKS[change.kind]} {change.name}{size}"
        own = [fact for fact in change.facts if fact not in shared]
        yield from (f"        {_metadata_line(fact)}" for fact in own)
        if everything or 0 < len(change.files) <= _MAX_FILES_LISTED:
            yield from (f"        {_file_line(file)}" for file in change.files)
        elif change.files:
            yield f"        {_change_counts(change.files)}"
    for fact in shared:
        yield f"    in all changed ones: {_metadata_line(fact)}"
    if difference.unchanged:
        count = len(difference.unchanged)
        yield f"    = {count} variant{'s' * (count != 1)} unchanged"


def _shared_changes(variants: Sequence[VariantChange]) -> list[MetadataChange]:
    """Facts that every changed variant has, when there are several."""
    changed = [change for change in variants if change.kind == "changed"]
    if len(changed) < _MIN_VARIANTS_SHARING:
        return []
    counts = Counter(fact for change in changed for fact in change.facts)
    return [fact for fact, count in counts.items() if count == len(changed)]


def _metadata_line(fact: MetadataChange) -> str:
    return f"{fact.name}: {fact.before or 'nothing'} -> {fact.after or 'nothing'}"


def _file_line(change: FileChange) -> str:
    return f"{CHANGE_MARKS[change.kind]} {change.path}{_size_change(change.before, change.after)}"


def _size_change(before: int | None, after: int | None) -> str:
    """`, 1.2 MiB`, or `, 1.2 MiB -> 1.4 MiB (+16.7 %)`."""
    if before is None or after is None:
        return f", {format_size(before if after is None else after)}"  # type: ignore[arg-type]
    if before == after:
        return f", {format_size(after)} as before"
    share = f" ({(after - before) / before:+.1%})".replace("%", " %") if before else ""
    return f", {format_size(before)} -> {format_size(after)}{share}"


def _change_counts(files: Sequence[FileChange]) -> str:
    counts = Counter(str(change.kind) for change in files)
    return ", ".join(f"{counts[kind]} files {kind}" for kind in CHANGE_MARKS if counts[kind])

"""What differs between two versions: interface, variants, what these say of themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from kbuild.hub.layout import CHARTS, README, variant_of
from kbuild.hub.values import Tree
from kbuild.metadata import Metadata
from kbuild.surface import Change
from kbuild.versions.bump import Bump
from kbuild.versions.model import Version, is_same, of_variant

Kind = Literal["added", "removed", "changed"]
_SHORT = 10
_OF_THE_PLACE = (README, ".gitattributes", ".gitignore")


@dataclass(frozen=True)
class Fact:
    """Something that a variant says of itself, before and after."""

    name: str
    """`archs`, `toolchain`, `licence`, ..."""
    before: str
    after: str


@dataclass(frozen=True)
class FileChange:
    """One file."""

    kind: Kind
    path: str
    before: int | None
    """Bytes; None when it was not there."""
    after: int | None


@dataclass(frozen=True)
class VariantChange:
    """One variant."""

    kind: Kind
    name: str
    before: int | None
    """Bytes of all its files."""
    after: int | None
    files: tuple[FileChange, ...] = ()
    """Of a variant that both have."""
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Difference:
    """Everything that differs."""

    old: str
    new: str
    """The two, as a person would name them."""
    interface: tuple[Change, ...]
    unread: str
    """Why the interfaces could not be compared; empty when they were."""
    bump: Bump
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


def variant_changes(old: Version, new: Version) -> tuple[VariantChange, ...]:
    """Those that are new, gone or different, by name.

    Raises:
        HubError: metadata has to be fetched, and cannot be.
    """
    names = sorted({*old.variants, *new.variants})
    return tuple(change for name in names if (change := _variant(name, old, new)) is not None)


def other_changes(old: Tree, new: Tree) -> tuple[FileChange, ...]:
    """Files of no variant, by path. The card is left out: it is made from the others."""
    parts = ({path: f for path, f in tree.items() if _is_other(path)} for tree in (old, new))
    return tuple(_files(*parts))


def _is_other(path: str) -> bool:
    return not (variant_of(path) or path in _OF_THE_PLACE or fnmatchcase(path, CHARTS))


def _variant(name: str, old: Version, new: Version) -> VariantChange | None:
    if name not in old.variants:
        return VariantChange("added", name, None, new.size(name))
    if name not in new.variants:
        return VariantChange("removed", name, old.size(name), None)
    files = tuple(_files(of_variant(old.files, name), of_variant(new.files, name)))
    if not files:
        return None
    facts = tuple(_facts(old.metadata[name], new.metadata[name]))
    return VariantChange("changed", name, old.size(name), new.size(name), files, facts)


def _files(old: Tree, new: Tree) -> Iterator[FileChange]:
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if not is_same(before, after):
            kind: Kind = "added" if before is None else "removed" if after is None else "changed"
            yield FileChange(
                kind, path, before.size if before else None, after.size if after else None
            )


def _facts(old: Metadata | None, new: Metadata | None) -> Iterator[Fact]:
    before, after = told(old), told(new)
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, "") != after.get(name, ""):
            yield Fact(name, before.get(name, ""), after.get(name, ""))


def told(metadata: Metadata | None) -> Mapping[str, str]:
    """What a variant says of itself, in words; of a toolchain, each part by itself."""
    if metadata is None:
        return {}
    made = metadata.provenance
    found = {
        "version": str(metadata.version),
        "licence": metadata.license,
        "archs": " ".join(metadata.archs or ()),
        "python-depends": " ".join(metadata.python_depends),
        "kernel-depends": " ".join(need.repo_id for need in metadata.kernel_depends),
        "kernels-minver": metadata.kernels_minver or "",
        "upstream": metadata.upstream or "",
        "source": metadata.source or "",
    }
    if made and made.kernel:
        dirty = " with changes" if made.kernel.dirty else ""
        found["commit"] = f"{made.kernel.commit[:_SHORT]}{dirty}"
    if made:
        used = made.builder.toolchain
        found["builder"] = f"{made.builder.name} {made.builder.version}"
        found["toolchain"] = used.source if used else ""
        found |= {f"toolchain {name}": v for name, v in (used.versions if used else {}).items()}
    return found

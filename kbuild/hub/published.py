"""What is published already: versions, variants, and what their Python package offers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from kbuild.hub.layout import BUILD, variant_of
from kbuild.hub.remote import Hub
from kbuild.hub.values import Refs, Repo, Tree
from kbuild.metadata import METADATA_FILE
from kbuild.scratch import scratch_folder
from kbuild.surface import Surface, SurfaceError, read_surface

_VERSION = re.compile(r"v(\d{1,9})")
_PYTHON = ".py"


def versions_of(refs: Refs) -> dict[int, str]:
    """Published versions in order, and the commit of each."""
    found = {int(match[1]): commit for name, commit in refs.branches.items()
             if (match := _VERSION.fullmatch(name))}  # fmt: skip
    return dict(sorted(found.items()))


def variants_of(tree: Tree) -> frozenset[str]:
    """The variants of a branch that the client can load: those with metadata."""
    return frozenset(
        variant
        for path in tree
        if (variant := variant_of(path)) and path == f"{BUILD}/{variant}/{METADATA_FILE}"
    )


def size_of(tree: Tree, variants: Iterable[str]) -> int:
    """Bytes of some variants."""
    wanted = frozenset(variants)
    return sum(file.size for path, file in tree.items() if variant_of(path) in wanted)


def published_surface(hub: Hub, repo: Repo, commit: str, *, own: str) -> Surface | None:
    """What a published version offers; None when it has no variant, or none that can be read.

    Args:
        hub: where it is.
        repo: the kernel's repository.
        commit: the version branch's head.
        own: the name of the Python package.

    Raises:
        HubError: the Hub cannot be asked.
    """
    tree = hub.tree(repo, commit)
    variant = min(variants_of(tree), default="")
    if not variant:
        return None
    top = f"{BUILD}/{variant}/"
    with scratch_folder("published") as scratch:
        for path in tree:
            if path.startswith(top) and path.endswith(_PYTHON):
                file = scratch / path.removeprefix(top)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(hub.read(repo, commit, path))
        with suppress(SurfaceError):
            return read_surface(scratch, own)
    return None

"""Mirrors: folders and object stores that hold published kernels, without a Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbuild.mirror.store import MirrorAddress, MirrorStore


def open_mirror(address: MirrorAddress) -> MirrorStore:
    """The store behind an address; nothing is made yet.

    Raises:
        ToolchainError: fsspec, or the driver that it needs for this address, is not installed.
        UsageError: fsspec knows no such kind of address.
        HubError: there is no connection.
    """
    if address.folder is not None:
        from kbuild.mirror.folder_store import FolderStore

        return FolderStore(address.folder)
    from kbuild.mirror.fsspec_store import FsspecStore

    return FsspecStore(address)

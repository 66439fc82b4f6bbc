"""From an address to the mirror that is kept there."""

from __future__ import annotations

from kbuild.mirror.address import Address
from kbuild.mirror.bucket import Bucket
from kbuild.mirror.folder import Folder
from kbuild.mirror.store import Store


def open_store(address: Address) -> Store:
    """The store behind an address; nothing is made yet.

    Raises:
        ToolchainError: fsspec, or the driver that it needs for this address, is not installed.
        UsageError: fsspec knows no such kind of address.
        HubError: there is no connection.
    """
    return Bucket(address) if address.folder is None else Folder(address.folder)

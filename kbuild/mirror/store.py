"""The door to where a mirror is kept. Paths are POSIX paths below the mirror's root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kbuild.errors import HubError

SMALL = 64 << 20
"""Bytes of the largest manifest."""


def bounded(data: bytes, shown: str) -> bytes:
    """What was read of a small file, asked for with one byte more than `SMALL`.

    Raises:
        HubError: it has more.
    """
    if len(data) > SMALL:
        raise HubError(f"`{shown}` has more than {SMALL >> 20} MB")
    return data


class Store(Protocol):
    """A tree of files. Methods raise the errors of `kbuild.hub.remote`, and nothing else."""

    @property
    def shown(self) -> str:
        """Where it is, without credentials."""
        ...

    @property
    def workers(self) -> int:
        """How many files may be on their way at once."""
        ...

    @property
    def rereads(self) -> bool:
        """Whether reading costs so little that copies inside the store are read again, too."""
        ...

    def blocks(self, path: str) -> Iterator[bytes]:
        """The content, bit by bit; `Missing` when there is no such file."""
        ...

    def read(self, path: str) -> bytes:
        """A file of at most `SMALL` bytes; `Missing` when there is none."""
        ...

    def write(self, path: str, source: Path | bytes) -> None:
        """Put a file there. Readers see what was there before, or all of it."""
        ...

    def duplicate(self, old: str, new: str) -> None:
        """Put the content of one file in another place; `Missing` when there is none."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """What is right inside a folder, in order; nothing when there is no such folder."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Every file below a folder: bytes by path inside it."""
        ...

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and folders that are empty then."""
        ...

    def point(self, link: str, target: str) -> bool:
        """Make a link lead to `target` at one stroke; False where there are no links."""
        ...

    def target(self, link: str) -> str | None:
        """What a link says; None where there is none."""
        ...

    def alone(self, path: str) -> AbstractContextManager[None]:
        """Nobody else inside at the same time, as far as the store can see to that."""
        ...

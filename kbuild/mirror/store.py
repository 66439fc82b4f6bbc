"""Where a mirror is kept: its address, without its secrets, and the interface of its files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from kbuild.errors import HubError, UsageError
from kbuild.runtime.redact import MASK, redacted

MAX_SMALL_FILE = 64 << 20
"""Bytes of the largest manifest."""


def require_small(data: bytes, shown: str, limit: int) -> bytes:
    """What was read of a small file, asked for with one byte more than `limit`.

    Raises:
        HubError: it has more.
    """
    if len(data) > limit:
        raise HubError(f"`{shown}` has more than {limit >> 20} MB")
    return data


class MirrorStore(Protocol):
    """A tree of files. Methods raise the errors of `kbuild.hub.repository`, and nothing else."""

    @property
    def shown(self) -> str:
        """Where it is, without credentials."""

    @property
    def workers(self) -> int:
        """How many files may be on their way at once."""

    @property
    def verifies_copies(self) -> bool:
        """Whether reading costs so little that copies inside the store are read again, too."""

    def blocks(self, path: str) -> Iterator[bytes]:
        """The content, bit by bit; `NotFoundError` when there is no such file."""

    def read(self, path: str) -> bytes:
        """A file of at most `MAX_SMALL_FILE` bytes; `NotFoundError` when there is none."""

    def fetch(self, path: str, limit: int) -> bytes:
        """A file of at most `limit` bytes in one request; `NotFoundError` when there is none."""

    def write(self, path: str, source: Path | bytes) -> None:
        """Put a file there. Readers see what was there before, or all of it."""

    def duplicate(self, old: str, new: str) -> None:
        """Put the content of one file in another place; `NotFoundError` when there is none."""

    def names(self, folder: str) -> tuple[str, ...]:
        """What is right inside a folder, in order; nothing when there is no such folder."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Every file below a folder: bytes by path inside it."""

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and folders that are empty then."""

    def point(self, link: str, target: str) -> bool:
        """Make a link lead to `target` at one stroke; False where there are no links."""

    def target(self, link: str) -> str | None:
        """What a link says; None where there is none."""

    def alone(self, path: str) -> AbstractContextManager[None]:
        """Nobody else inside at the same time, as far as the store can see to that."""


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?:::[a-z0-9+.-]+)*://", flags=re.IGNORECASE)
_FILE_SCHEME = "file"
_MIN_SECRET_LENGTH = 3
"""Characters of the shortest part of an address that is worth hiding."""


@dataclass(frozen=True)
class MirrorAddress:
    """One mirror."""

    text: str = field(repr=False)
    """As it was given, credentials included."""
    folder: Path | None = None
    """On this machine; None for a store."""

    @property
    def shown(self) -> str:
        """What may be shown: without user, password and query."""
        if self.folder is not None:
            return str(self.folder)
        return without_credentials(self.text)

    def without_secrets(self, text: str) -> str:
        """A text from somebody else's library, without what the address keeps secret."""
        text = text.replace(self.text, self.shown)
        for secret in sorted({*_secrets(self.text)}, key=len)[::-1]:
            text = text.replace(secret, MASK)
        return redacted(text)


def parse_mirror_address(text: str, cwd: Path) -> MirrorAddress:
    """Read `DIR`, `file:///DIR` or `s3://bucket/folder`.

    Raises:
        UsageError: `file:` with another machine's name.
    """
    if not is_url(text):
        return MirrorAddress(text, Path(os.path.normpath(cwd / os.path.expanduser(text))))  # noqa: PTH111 - never fails
    if text.partition("://")[0].lower() != _FILE_SCHEME:
        return MirrorAddress(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"`{without_credentials(text)}` names another machine")
    return MirrorAddress(text, Path(unquote(parts.path)))


def is_url(text: str) -> bool:
    """True for `s3://...` and the like."""
    return _SCHEME.match(text) is not None


def without_credentials(text: str) -> str:
    """An address without user, password, query and fragment."""
    bare = re.split(r"[?#]", text, maxsplit=1)[0].rstrip("/")
    return re.sub(r"(?<=://)[^/\s]*@", "", bare)


def _secrets(text: str) -> Iterator[str]:
    """The parts of an address that are nobody's business, as written and decoded."""
    user = re.match(r"([^/\s]*)@", text.partition("://")[2])
    parts = [user[1], *user[1].split(":", 1)[1:], *re.split("[:@]", user[1])[1:]] if user else []
    query = text.partition("#")[0].partition("?")[2]
    parts += [value for _, value in parse_qsl(query)] + [query]
    for part in parts:
        yield from (word for word in (part, unquote(part)) if len(word) >= _MIN_SECRET_LENGTH)

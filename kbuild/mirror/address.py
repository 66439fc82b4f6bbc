"""Where a mirror is: a folder, or an address that fsspec understands, whose secrets stay secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from kbuild.errors import UsageError
from kbuild.redact import MASK, redacted

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?:::[a-z0-9+.-]+)*://", flags=re.IGNORECASE)
_FILE = "file"
_SHORTEST = 3
"""Characters of the shortest part of an address that is worth hiding."""


@dataclass(frozen=True)
class Address:
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

    def hidden(self, text: str) -> str:
        """A text from somebody else's library, without what the address keeps secret."""
        text = text.replace(self.text, self.shown)
        for secret in sorted({*_secrets(self.text)}, key=len)[::-1]:
            text = text.replace(secret, MASK)
        return redacted(text)


def parse_address(text: str, cwd: Path) -> Address:
    """Read `DIR`, `file:///DIR` or `s3://bucket/folder`.

    Raises:
        UsageError: `file:` with another machine's name.
    """
    if not is_url(text):
        return Address(text, Path(os.path.normpath(cwd / os.path.expanduser(text))))  # noqa: PTH111 - never fails
    if text.partition("://")[0].lower() != _FILE:
        return Address(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"`{without_credentials(text)}` names another machine")
    return Address(text, Path(unquote(parts.path)))


def is_url(text: str) -> bool:
    """True for `s3://...` and the like."""
    return _SCHEME.match(text) is not None


def without_credentials(text: str) -> str:
    """An address without user, password, query and fragment."""
    bare = re.split(r"[?#]", text, maxsplit=1)[0].rstrip("/")
    return re.sub(r"(?<=://)[^/\s]*@", "", bare)


def _secrets(text: str) -> Iterator[str]:
    """The parts of an address that are nobody's business, as written and decoded."""
    rest = text.partition("://")[2]
    user = re.match(r"([^/\s]*)@", rest)
    parts = [user[1], *user[1].split(":", 1)[1:], *re.split("[:@]", user[1])[1:]] if user else []
    query = text.partition("#")[0].partition("?")[2]
    parts += [value for _, value in parse_qsl(query)] + [query]
    for part in parts:
        yield from (word for word in (part, unquote(part)) if len(word) >= _SHORTEST)

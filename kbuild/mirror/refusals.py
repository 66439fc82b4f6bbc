"""What fsspec and its drivers raise, as kbuild's errors, without anything that is secret."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from kbuild.errors import HubError, KbuildError, UsageError
from kbuild.hub.remote import Busy, Denied, Missing
from kbuild.mirror.address import Address

_BUSY = (408, 425, 429, 500, 502, 503, 504)
_DENIED = (401, 403)
_GONE, _UNABLE = 404, (405, 501)
_FINAL = (errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EDQUOT)
_NETWORK = ("aiohttp", "asyncio", "botocore", "aiobotocore", "paramiko", "httpx", "requests")
_ACCESS = "its driver takes credentials from the environment; docs/how-to/mirror.md says more"
_LATER = "run the command again: what has arrived is not sent again"


def in_words(error: Exception, address: Address, what: str) -> KbuildError:
    """The error to raise instead. `what` follows "... was asked"."""
    asked = f"{address.shown} was asked {what}"
    said = address.hidden(_line(error))
    if isinstance(error, NotImplementedError) or _status(error) in _UNABLE:
        hint = "mirrors over HTTP can only be read" if address.text.startswith("http") else ""
        return UsageError(f"that cannot be done: {asked}", hint=hint)
    if isinstance(error, FileNotFoundError) or _status(error) == _GONE:
        return Missing(f"nothing is there when {asked}")
    if _is_denied(error):
        return Denied(f"access is refused when {asked}: {said}", hint=_ACCESS)
    if _is_busy(error):
        return Busy(f"no good answer when {asked}: {said}", hint=_LATER)
    return HubError(f"it failed when {asked}: {said}")


def _is_denied(error: Exception) -> bool:
    name = type(error).__name__
    known = "Credential" in name or "Authentication" in name
    return isinstance(error, PermissionError) or known or _status(error) in _DENIED


def _is_busy(error: Exception) -> bool:
    status = _status(error)
    if status is not None:
        return status in _BUSY
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _FINAL:
        return False
    origin = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or origin in _NETWORK


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error or one of its causes carries, wherever drivers keep it."""
    for cause in _causes(error):
        response: Any = getattr(cause, "response", None)
        told = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
        found = (
            getattr(cause, "status", None),
            getattr(cause, "code", None),
            getattr(response, "status_code", None),
            told.get("HTTPStatusCode"),
        )
        for status in found:
            if isinstance(status, int) and 400 <= status < 600:  # noqa: PLR2004
                return status
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _line(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:300]

"""What `huggingface_hub` raises, as kbuild's errors and in its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kbuild.errors import HubError
from kbuild.hub.remote import Busy, Denied, Missing, Moved
from kbuild.redact import redacted

_BUSY = (408, 425, 429, 500, 502, 503, 504)
_UNKNOWN_TOKEN, _FORBIDDEN, _GONE, _TAKEN, _STALE = 401, 403, 404, 409, 412
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "hf_xet")
_RESET = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
_LOGIN = "`hf auth login` asks for a new one; `HF_TOKEN` is stronger than what it keeps"
_APPROVAL = (
    "the token must be one that may write, and the Hub must let its owner publish kernels: ask for "
    "that on the Hub's pages about kernels, or give --create-pr"
)
_LATER = "run the command again: it goes on where this one stopped"


def in_words(error: Exception, what: str) -> HubError:
    """The error to raise instead. `what` follows "the Hub was asked"."""
    causes = tuple(_causes(error))
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            return _of_status(status, cause, what)
    if any(type(cause).__name__ == "OfflineModeIsEnabled" for cause in causes):
        return HubError("`HF_HUB_OFFLINE` is set", hint="unset it to upload")
    if any(type(cause).__name__ == "LocalTokenNotFoundError" for cause in causes):
        return Denied("there is no token for the Hub", hint=_LOGIN)
    if any(_is_network(cause) for cause in causes):
        return Busy(f"no answer when the Hub was asked {what}", hint=_LATER)
    return HubError(f"it failed to ask the Hub {what}: {_said(error)}")


def _of_status(status: int, error: BaseException, what: str) -> HubError:
    said = _server_words(error)
    if status in _BUSY:
        text = "the Hub counts too many requests" if status == 429 else f"the Hub answered {status}"  # noqa: PLR2004
        headers = getattr(getattr(error, "response", None), "headers", {})
        return Busy(f"{text} when asked {what}", wait=asked_wait(headers), hint=_LATER)
    if status == _UNKNOWN_TOKEN and type(error).__name__ != "RepositoryNotFoundError":
        return Denied("the Hub does not know the token", hint=_LOGIN)
    if status in (_UNKNOWN_TOKEN, _GONE):
        return Missing(f"the Hub shows nothing when asked {what}{said}")
    if status == _FORBIDDEN:
        return Denied(f"the Hub refuses when asked {what}{said}", hint=_APPROVAL)
    if status in (_TAKEN, _STALE):
        return Moved(f"something has changed when the Hub was asked {what}{said}", hint=_LATER)
    return HubError(f"the Hub answered {status} when asked {what}{said}")


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the Hub asks to wait, by `Retry-After` or by its count of requests."""
    known = {str(key).lower(): str(value) for key, value in headers.items()}
    after = known.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after)
    reset = _RESET.search(known.get("ratelimit", ""))
    return float(reset[1]) if reset else None


def _is_network(error: BaseException) -> bool:
    origin = type(error).__module__.partition(".")[0]
    return origin in _NETWORK or isinstance(error, (ConnectionError, TimeoutError))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, at most once each."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _server_words(error: BaseException) -> str:
    """The reason that the Hub itself gave, on one line."""
    text = str(getattr(error, "server_message", None) or "")
    return f": {redacted(' '.join(text.split()))[:300]}" if text else ""


def _said(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return redacted(first)[:300] or type(error).__name__

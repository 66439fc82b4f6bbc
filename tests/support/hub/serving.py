"""Content of files over HTTP: whole, or not again; and URLs that only the Hub makes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from tests.support.hub.answers import Answer, Refused, Span
from tests.support.hub.request import Request


def file_answer(
    request: Request, path: Path, etag: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """A file, or that it is what the client has already."""
    common = {"ETag": f'"{etag}"', **(headers or {})}
    if request.headers.get("If-None-Match", "").strip('"') == etag:
        return Answer(304, b"", common)
    size = path.stat().st_size
    common["Content-Type"] = "application/octet-stream"
    return Answer(200, Span(path, 0, size), common)


def signature(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()[:32]


def signed(request: Request, base: str, path: str, **parameters: str) -> str:
    """A URL that needs no token: whoever has it may do what it says."""
    quoted = quote(path)
    query = urlencode(sorted(parameters.items()))
    made = signature(request.hub.secret, f"{quoted}?{query}")
    return f"{base}{quoted}?{query}{'&' * bool(query)}signature={made}"


def check_signature(request: Request) -> None:
    """Refuse a URL that the Hub has not made.

    Raises:
        Refused: with 403, as object stores do.
    """
    own = {name: values[0] for name, values in request.query.items() if name != "signature"}
    text = f"{request.path}?{urlencode(sorted(own.items()))}"
    if not hmac.compare_digest(signature(request.hub.secret, text), request.first("signature")):
        raise Refused(403, "The signature does not match")

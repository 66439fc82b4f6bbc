"""A request as the endpoints see it, and the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote

from tests.support.hub.accounts import Account
from tests.support.hub.answers import Answer, Refused
from tests.support.hub.faults import Fault
from tests.support.hub.hub import Hub
from tests.support.hub.repository import Repository

CHUNK = 1 << 16


class Body:
    """What a client sends: read once, piece by piece."""

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self.length = length
        self.received = 0
        self._stream = stream
        self._pieces = self._counted(length)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.received += len(piece)
            yield piece

    def read(self) -> bytes:
        """All that has not been read yet."""
        return b"".join(self)

    def take(self, count: int) -> None:
        """Read a number of bytes and forget them."""
        self.received += len(self._stream.read(count))

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            Refused: it is none.
        """
        try:
            return json.loads(self.read() or b"{}")
        except ValueError:
            raise Refused(400, "The body is not JSON") from None

    def _counted(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self._stream.read(min(CHUNK, left))
            if not piece:
                raise ConnectionError("the client has left")
            left -= len(piece)
            yield piece


@dataclass
class Request:
    """One request, after its route was found."""

    method: str
    path: str
    """Without the query, still quoted."""
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Body
    hub: Hub
    endpoint: str
    """URL of the Hub."""
    storage: str
    """URL of the storage, which is another origin, as the real one is."""
    account: Account | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """The named parts of the path, unquoted."""
    fault: Fault | None = None

    def __getitem__(self, name: str) -> str:
        return self.arguments[name]

    def flag(self, name: str) -> bool:
        return self.first(name).lower() in ("1", "true")

    def first(self, name: str, default: str = "") -> str:
        """The first value of a parameter of the query."""
        return self.query.get(name, [default])[0]

    def repository(self) -> Repository:
        """The repository that the path names, if the account may see it."""
        return self.hub.visible(self.arguments.get("kind") or "models", self["name"], self.account)

    def writable(self) -> Repository:
        """The repository that the path names, if the account may change it."""
        return self.hub.writable(self.arguments.get("kind") or "models", self["name"], self.account)

    def logged_in(self) -> Account:
        """Who asks.

        Raises:
            Refused: a stranger.
        """
        if self.account is None:
            raise Refused(401, "Invalid username or password.")
        return self.account

    def page_of(self, repository: Repository) -> str:
        """URL of a repository's page."""
        prefix = "" if repository.kind == "models" else f"{repository.kind}/"
        return f"{self.endpoint}/{prefix}{repository.name}"


Handler: TypeAlias = Callable[[Request], Answer]


@dataclass(frozen=True)
class Route:
    """A method and a pattern of paths."""

    method: str
    pattern: re.Pattern[str]
    handler: Handler
    storage: bool

    def match(self, method: str, path: str, storage: bool) -> dict[str, str] | None:
        asked = "GET" if method == "HEAD" else method
        found = self.pattern.fullmatch(path) if asked == self.method else None
        if found is None or storage != self.storage:
            return None
        return {name: unquote(part) for name, part in found.groupdict().items() if part is not None}


ROUTES: list[Route] = []
KIND = r"(?P<kind>kernels|models|datasets)"
NAME = r"(?P<name>[^/]+/[^/]+?)"
REVISION = r"(?P<revision>refs/(?:pr|heads|tags)/[^/]+|[^/]+)"
API = f"/api/{KIND}/{NAME}"
PAGE = f"/(?:(?P<kind>kernels|datasets)/)?{NAME}"


def route(method: str, pattern: str, *, storage: bool = False) -> Callable[[Handler], Handler]:
    """Answer a method on paths that match; `HEAD` goes where `GET` goes."""

    def add(handler: Handler) -> Handler:
        ROUTES.append(Route(method, re.compile(pattern), handler, storage))
        return handler

    return add


def dispatch(request: Request, storage: bool) -> Handler | None:
    """The handler of a request, whose arguments are set; None when no route matches."""
    for known in ROUTES:
        arguments = known.match(request.method, request.path, storage)
        if arguments is not None:
            request.arguments = arguments
            return known.handler
    return None


def query_of(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True)

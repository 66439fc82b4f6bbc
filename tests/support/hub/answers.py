"""What a request is answered with, and how a refusal is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JSON_TYPE = "application/json; charset=utf-8"


@dataclass(frozen=True)
class Span:
    """Bytes `start` to `stop` (exclusive) of a file."""

    path: Path
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Answer:
    """A status, headers and a body: bytes, or a part of a file that is sent as it is read."""

    status: int = 200
    body: bytes | Span = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818 - what the Hub does, not what went wrong here
    """The request is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """As the Hub says it: once in headers, which clients read, and once in the body."""
        headers = {"Content-Type": JSON_TYPE, "X-Error-Message": self.message, **self.headers}
        if self.code:
            headers["X-Error-Code"] = self.code
        return Answer(self.status, json.dumps({"error": self.message}).encode(), headers)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON answer."""
    body = json.dumps(value).encode()
    return Answer(status, body, {"Content-Type": JSON_TYPE, **(headers or {})})


def no_repository(authenticated: bool) -> Refused:
    """Missing, or private: the Hub does not say which, and tells strangers to log in."""
    return Refused(404 if authenticated else 401, "Repository not found", "RepoNotFound")


def no_revision(revision: str) -> Refused:
    return Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def no_entry(message: str, commit: str) -> Refused:
    return Refused(404, message, "EntryNotFound", {"X-Repo-Commit": commit})

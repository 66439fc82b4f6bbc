"""What the Hub says no with, and how long it is asked again."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbuild.publish.hub.huggingface import requested_wait, require_listener, translate_hub_error
from kbuild.publish.hub.repository import (
    AccessDeniedError,
    Account,
    BusyError,
    ConflictError,
    NotFoundError,
    Repo,
    RetryPolicy,
)
from kbuild.system.errors import HubError


@dataclass
class Response:
    status_code: int
    headers: dict[str, str] = field(default_factory=dict)


class AnswerError(Exception):
    def __init__(self, status: int, said: str = "", **headers: str) -> None:
        super().__init__("https://hub.example/x?X-Amz-Signature=1234 hf_abcdefghijklmnop1234")
        self.response = Response(status, {k.replace("_", "-"): v for k, v in headers.items()})
        self.server_message = said


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((429, BusyError), (500, BusyError), (503, BusyError)),
        *((401, AccessDeniedError), (403, AccessDeniedError), (404, NotFoundError)),
        *((409, ConflictError), (412, ConflictError)),
    ],
)
def test_statuses(status: int, kind: type[Exception]) -> None:
    found = translate_hub_error(AnswerError(status), "for a test")
    assert type(found) is kind
    assert "hf_" not in str(found)
    assert "Signature" not in str(found)


def test_the_servers_own_reason_is_told_without_secrets() -> None:
    error = AnswerError(403, "no rights\nfor hf_abcdefghijklmnop1234")
    assert str(translate_hub_error(error, "for a test")).startswith(
        "the Hub refused when asked for a test: no rights for ***\n"
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "120"}, 120.0),
        ({"RateLimit": '"api";r=0;t=55'}, 55.0),
        ({"RateLimit": '"api";r=3;t=55'}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
def test_how_long_the_hub_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert requested_wait(headers) == seconds


class TestPatience:
    def retry(self, waits: list[float], **more: Any) -> RetryPolicy:
        return RetryPolicy(sleep=waits.append, random=random.Random(1), **more)  # noqa: S311

    def test_as_long_as_asked(self) -> None:
        waits: list[float] = []
        answers = iter([BusyError("busy", retry_after_s=30), None])

        def once() -> str:
            if (error := next(answers)) is not None:
                raise error
            return "done"

        assert self.retry(waits).call(once) == "done"
        assert 30 < waits[0] < 33


class TestRights:
    REPO = Repo("org/relu")

    @pytest.mark.parametrize(
        ("account", "words"),
        [
            (Account("org"), ""),
            (Account("me", {"org": "write"}, writes=True), ""),
            (Account("me", {"org": ""}), ""),
            (Account("me", {"org": "read"}), "me may only read in org"),
            (Account("me", {"other": "admin"}), "me is not a member of org"),
            (Account("org", writes=False), "the token of org may only read"),
            (Account("org", scopes=frozenset({"org/relu"})), ""),
            (Account("org", scopes=frozenset({"org"})), ""),
            (
                Account("org", scopes=frozenset({"org/other"})),
                "the fine-grained token of org may not write to org/relu",
            ),
        ],
    )
    def test_why_not(self, account: Account, words: str) -> None:
        assert account.write_problem(self.REPO) == words


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbuild.publish.hub.huggingface._PAUSE_S", 0.01)
    endpoint = f"http://127.0.0.1:{_free_port()}"
    with pytest.raises(HubError, match=f"the Hub at {endpoint} cannot be reached: .*refused"):
        require_listener(endpoint)

"""What the Hub says no with, and how long it is asked again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from kbuild.hub.patience import Patience
from kbuild.hub.refusals import asked_wait, in_words
from kbuild.hub.remote import Busy, Denied, Missing, Moved
from kbuild.hub.values import Account, Repo


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
    [(429, Busy), (500, Busy), (503, Busy), (401, Denied), (403, Denied), (404, Missing),
     (409, Moved), (412, Moved)],
)  # fmt: skip
def test_statuses(status: int, kind: type[Exception]) -> None:
    found = in_words(AnswerError(status), "for a test")
    assert type(found) is kind
    assert "hf_" not in str(found)
    assert "Signature" not in str(found)


def test_the_servers_own_reason_is_told_without_secrets() -> None:
    error = AnswerError(403, "no rights\nfor hf_abcdefghijklmnop1234")
    assert str(in_words(error, "for a test")).startswith(
        "the Hub refuses when asked for a test: no rights for ***\n"
    )


def test_a_cause_deep_down() -> None:
    error = RuntimeError("Error while uploading")
    error.__cause__ = AnswerError(503)
    assert isinstance(in_words(error, "x"), Busy)
    error.__cause__ = ConnectionResetError()
    assert isinstance(in_words(error, "x"), Busy)


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
    assert asked_wait(headers) == seconds


class TestPatience:
    def patience(self, waits: list[float], **more: Any) -> Patience:
        return Patience(sleep=waits.append, chance=random.Random(1), **more)  # noqa: S311

    def test_longer_each_time_and_never_at_the_same_moment(self) -> None:
        waits: list[float] = []

        def fail() -> None:
            raise Busy("busy")

        with pytest.raises(Busy):
            self.patience(waits).persist(fail)
        assert len(waits) == 7
        assert all(2**n <= wait < 2 ** (n + 1) for n, wait in enumerate(waits))

    def test_as_long_as_asked(self) -> None:
        waits: list[float] = []
        answers = iter([Busy("busy", wait=30), None])

        def once() -> str:
            if (error := next(answers)) is not None:
                raise error
            return "done"

        assert self.patience(waits).persist(once) == "done"
        assert 30 < waits[0] < 33

    def test_not_for_hours(self) -> None:
        waits: list[float] = []
        with pytest.raises(Busy):
            self.patience(waits).wait(Busy("busy", wait=7200), 1)
        assert waits == []


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
        assert account.why_not(self.REPO) == words

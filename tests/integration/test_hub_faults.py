"""The faults of the test Hub: each really happens, and does what its table says."""

from __future__ import annotations

import http.client
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.hub.faults import KINDS, Faults, Kind
from tests.support.hub.fixture import HubBench
from tests.support.hub.repository import Change

START = "from huggingface_hub import *; api = HfApi()\n"
COMMIT = START + (
    "add = [CommitOperationAdd(a, bytes(a, 'utf-8') * 9) for a in arguments]\n"
    "info = api.create_commit('org/k', add, commit_message='m', repo_type='kernel',"
    " revision='v1')\nanswer(info.oid)"
)
LARGE = START + (
    "api.upload_file(path_or_fileobj=bytes(10**6), path_in_repo='a.bin', repo_id='org/k',"
    " repo_type='kernel', revision='v1')\nanswer('sent')"
)


@pytest.fixture(autouse=True)
def repository(hub: HubBench) -> None:
    hub.create("org/k", "v1")


def test_429_says_when_to_come_back(hub: HubBench) -> None:
    hub.faults.add("429", "/refs", retry_after=7)
    answer = hub.ask("GET", "/api/kernels/org/k/refs")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "7")
    assert hub.ask("GET", "/api/kernels/org/k/refs").status == 200
    hub.faults.add("429", "/commit/")
    assert hub.python(COMMIT, "a")["status"] == 429  # commits are not tried again by the client
    assert hub.content("org/k", "v1") == {}


def test_429_on_the_way_is_waited_for(hub: HubBench) -> None:
    hub.faults.add("429", "/preupload/", retry_after=1)
    began = time.monotonic()
    assert hub.python(LARGE) == "sent"
    assert time.monotonic() - began > 2  # what is asked for, and a second more
    assert [record.status for record in hub.log.matching("/preupload/")] == [429, 200]


@pytest.mark.parametrize("kind", ["500", "403"])
def test_a_refused_commit_is_not_carried_out(hub: HubBench, kind: Kind) -> None:
    hub.faults.add(kind, "/commit/")
    assert hub.python(COMMIT, "a")["status"] == int(kind)
    assert hub.content("org/k", "v1") == {}
    assert hub.log.commits == []
    assert len(hub.log.matching("/commit/")) == 1


def test_500_although_it_was_carried_out(hub: HubBench) -> None:
    hub.faults.add("500-after-commit", "/commit/")
    assert hub.python(COMMIT, "a")["status"] == 500
    assert set(hub.content("org/k", "v1")) == {"a"}


def test_cut_after_the_commit(hub: HubBench) -> None:
    """The worst: the client cannot know that its commit was made."""
    hub.faults.add("cut-after-commit", "/commit/")
    error = hub.python(COMMIT, "a")
    assert error["error"] in ("RemoteProtocolError", "ReadError")
    assert error["status"] is None
    assert set(hub.content("org/k", "v1")) == {"a"}
    assert [record.status for record in hub.log.matching("/commit/")] == [0]


def test_cut_commit(hub: HubBench) -> None:
    hub.faults.add("cut", "/commit/")
    assert hub.python(COMMIT, "a")["error"] in ("RemoteProtocolError", "ReadError", "WriteError")
    assert hub.content("org/k", "v1") == {}


def test_cut_upload_is_sent_again(hub: HubBench) -> None:
    hub.faults.add("cut", "PUT /upload/")
    assert hub.python(LARGE) == "sent"
    first, second = hub.log.matching("PUT /upload/")
    assert (first.status, first.received) == (0, 500_000)
    assert (second.status, second.received) == (200, 1_000_000)
    assert hub.content("org/k", "v1") == {"a.bin": bytes(10**6)}
    assert not list(hub.hub.root.rglob(".partial-*"))


DOWNLOAD = START + (
    "path = api.hf_hub_download('org/k', 'a.bin', repo_type='kernel', revision='v1')\n"
    "answer(set(open(path, 'rb').read()) == {0})"
)


def test_cut_download_goes_on_where_it_ended(hub: HubBench) -> None:
    """huggingface_hub counts in pieces of 10 MiB: what is left of one is asked for again."""
    size, piece = 24 << 20, 10 << 20
    assert hub.python(LARGE.replace("10**6", str(size))) == "sent"
    hub.faults.add("cut-answer", "GET /download/")
    assert hub.python(DOWNLOAD) is True
    first, second = hub.log.matching("GET /download/")
    assert (first.status, first.sent) == (0, size // 2)
    assert (second.status, second.sent) == (206, size - piece)


def test_reset_download_is_not_tried_again(hub: HubBench) -> None:
    """huggingface_hub goes on after an end of the connection, and gives up after a reset."""
    hub.python(LARGE)
    hub.faults.add("reset-answer", "GET /download/")
    assert hub.python(DOWNLOAD)["error"] == "ReadError"
    assert hub.python(DOWNLOAD) is True


def test_slow(hub: HubBench) -> None:
    hub.faults.add("slow", "/refs", seconds=0.4)
    began = time.monotonic()
    assert hub.ask("GET", "/api/kernels/org/k/refs").status == 200
    assert time.monotonic() - began >= 0.4


def test_somebody_else_is_faster(hub: HubBench) -> None:
    head = hub.hub.repository("org/k").resolve("v1").oid
    hub.faults.add("stale")
    assert hub.ask("GET", "/api/kernels/org/k/refs").status == 200  # only commits can be overtaken
    assert hub.commit("org/k", "v1", {"a": "1"}, parentCommit=head).status == 412
    moved = hub.hub.repository("org/k").resolve("v1")
    assert moved.parents == (head,)
    assert hub.content("org/k", "v1") == {}  # the other commit changes no file
    hub.faults.add("stale")
    assert (
        hub.commit("org/k", "v1", {"a": "1"}).status == 200
    )  # who names no parent notices nothing


def test_times_and_after() -> None:
    faults = Faults()
    faults.add("500", "GET", times=2, after=1)
    found = [faults.take(line) for line in ("GET /", "PUT /", "GET /", "GET /", "GET /")]
    assert [fault and fault.kind for fault in found] == [None, None, "500", "500", None]
    assert faults.fired == [("500", "GET /"), ("500", "GET /")]
    faults.add("403", times=None)
    assert all(faults.take("PUT /") for _ in range(5))
    faults.clear()
    assert faults.take("PUT /") is None


def test_the_same_seed_gives_the_same_faults() -> None:
    def drawn(seed: int) -> list[str | None]:
        faults = Faults()
        faults.at_random(seed, 0.3, match="POST")
        lines = [f"{method} /api/kernels/o/k/commit/v1" for method in ("GET", "POST")] * 200
        found = [faults.take(line) for line in lines]
        assert not any(found[::2])
        return [fault.kind if fault else None for fault in found[1::2]]

    assert drawn(1) == drawn(1) != drawn(2)
    kinds = [kind for kind in drawn(1) if kind]
    assert set(kinds) == set(KINDS)
    assert 30 < len(kinds) < 90
    limited = Faults()
    limited.at_random(1, 1.0, ("500",), times=3)
    assert sum(limited.take("GET /") is not None for _ in range(9)) == 3


def test_random_faults_reach_requests(hub: HubBench) -> None:
    hub.faults.at_random(7, 0.5, ("500", "cut", "cut-after-commit"))
    statuses = []
    for number in range(20):
        try:
            statuses.append(hub.commit("org/k", "v1", {f"f{number}": "1"}).status)
        except (ConnectionError, http.client.HTTPException):
            statuses.append(0)
    assert {0, 200, 500} == set(statuses)
    applied = statuses.count(200) + sum(k == "cut-after-commit" for k, _ in hub.faults.fired)
    assert len(hub.content("org/k", "v1")) == applied


def test_two_at_once_do_not_mix(hub: HubBench) -> None:
    head = hub.hub.repository("org/k").resolve("v1").oid
    names = [f"f{number}" for number in range(16)]

    def commit(name: str, **header: str) -> int:
        return hub.commit("org/k", "v1", {name: "1"}, **header).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(commit, names)) == {200}
        newest = hub.hub.repository("org/k").resolve("v1").oid
        assert len(hub.content("org/k", "v1")) == 16
        again = list(pool.map(lambda name: commit(name + "x", parentCommit=newest), names))
        old = list(pool.map(lambda name: commit(name + "y", parentCommit=head), names))
    assert sorted(again) == [200] + [412] * 15
    assert set(old) == {412}
    repository = hub.hub.repository("org/k")
    assert len(repository.history(repository.resolve("v1"))) == 18


def test_listeners_see_every_moment(hub: HubBench) -> None:
    seen: list[tuple[str, set[str]]] = []

    def look(change: Change) -> None:
        if change.after is None:
            raise LookupError(change.ref)
        files = set(change.repository.resolve(change.ref).files) - {".gitattributes"}
        seen.append((change.ref, files))

    hub.hub.listen(look)
    hub.commit("org/k", "v1", {"a": "1"})
    hub.faults.add("500", "/commit/")
    hub.commit("org/k", "v1", {"b": "1"})
    hub.ask("POST", "/api/kernels/org/k/branch/v2", {"startingPoint": "v1"})
    hub.ask("DELETE", "/api/kernels/org/k/branch/v2")
    assert seen == [("refs/heads/v1", {"a"}), ("refs/heads/v2", {"a"})]
    assert [str(error) for error in hub.hub.complaints] == ["refs/heads/v2"]
    hub.hub.complaints.clear()  # else the fixture raises it


def test_objects_must_be_what_they_are_called(hub: HubBench, tmp_path: Path) -> None:
    oid = "0" * 64
    payload = {"operation": "upload", "objects": [{"oid": oid, "size": 3}], "ref": {"name": "v1"}}
    answer = hub.ask("POST", "/kernels/org/k.git/info/lfs/objects/batch", payload).json()
    href = answer["objects"][0]["actions"]["upload"]["href"]
    target = href.removeprefix(hub.server.storage)
    assert hub.ask_storage("PUT", target, b"abc").status == 400
    row = {"path": "a.bin", "algo": "sha256", "oid": oid, "size": 3}
    lines = b'{"key": "header", "value": {"summary": "m"}}\n{"key": "lfsFile", "value": %s}\n'
    body = lines % str(row).replace("'", '"').encode()
    assert hub.ask("POST", "/api/kernels/org/k/commit/v1", body).status == 400
    assert hub.content("org/k", "v1") == {}

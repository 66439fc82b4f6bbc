"""The shared cache in folders, in memory, on a web server and in S3; its settings and its sweep."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kbuild.errors import ToolchainError, UsageError, install_command
from kbuild.mirror.remote_cache import MirrorFiles, remote_cache_address, remote_cache_of
from kbuild.runtime.remote_cache import RemoteCache
from tests.support.remote_caches import stored

S3_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-nobody",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
Open = Callable[..., RemoteCache]


def opened(warnings: list[str], url: str, **variables: str) -> RemoteCache:
    environ = {"KBUILD_REMOTE_CACHE": url, **variables}
    cache = remote_cache_of(environ, warnings.append)
    assert cache is not None
    return cache


def files_of(url: str) -> MirrorFiles:
    address = remote_cache_address({"KBUILD_REMOTE_CACHE": url})
    assert address is not None
    return MirrorFiles(address)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    for name, value in S3_VARIABLES.items():
        monkeypatch.setenv(name, value)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield "s3://bucket/kernels"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return (tmp_path / "a cache").as_uri()


@pytest.fixture
def memory() -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    yield "memory://shared/cache"
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("kind", ["folder", "memory", "s3"])
def test_a_round_trip_and_a_sweep(kind: str, request: pytest.FixtureRequest) -> None:
    url, warnings = request.getfixturevalue(kind), []
    stored(opened(warnings, url), **{"objects/aa/bb": b"x" * 1000})
    time.sleep(1.1 if kind == "s3" else 0.05)  # S3 tells whole seconds
    stored(opened(warnings, url), **{"images/cc/dd": os.urandom(5000)})
    reader = opened(warnings, url, KBUILD_REMOTE_CACHE_MODE="read")
    assert reader.get("objects/aa/bb") == b"x" * 1000
    assert reader.get("objects/ee/ff") is None
    stored(reader, **{"objects/ee/ff": b"no"})
    files = files_of(url)
    order = [entry.path for entry in files.entries()]
    assert sorted(order) == ["images/cc/dd", "objects/aa/bb"]
    # Folders know when an entry was used, other stores when it was written.
    assert order[0] == ("images/cc/dd" if kind == "folder" else "objects/aa/bb")
    least = files.entries()[0]
    limit = files.entries()[1].size
    assert files.sweep(limit, dry_run=True) == [least]
    assert len(files.entries()) == 2
    assert files.sweep(limit) == [least]
    assert [entry.path for entry in files_of(url).entries()] == order[1:]
    assert opened(warnings, url).get(order[0]) is None
    assert not warnings


def test_two_writers_and_a_reader(folder: str) -> None:
    warnings: list[str] = []
    contents = [bytes([number]) * 100_000 for number in range(8)]

    def write(content: bytes) -> None:
        for _ in range(5):
            stored(opened(warnings, folder), **{"objects/aa/bb": content})

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    reader, seen = opened(warnings, folder), set()
    while any(thread.is_alive() for thread in threads):
        seen.add(reader.get("objects/aa/bb"))
    assert seen <= {None, *contents}
    assert not warnings
    left = Path(urlsplit(folder).path.replace("%20", " ")).rglob("*")
    assert [path.name for path in left if path.is_file()] == ["bb"]


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_web_server_is_read(folder: str) -> None:
    pytest.importorskip("aiohttp")
    warnings: list[str] = []
    stored(opened(warnings, folder), **{"objects/aa/bb": b"content"})
    root = urlsplit(folder).path.replace("%20", " ")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    cache = opened(warnings, url)
    assert not cache.is_written
    assert cache.get("objects/aa/bb") == b"content"
    assert cache.get("objects/aa/cc") is None
    assert not warnings
    server.shutdown()
    server.server_close()
    for name in "abc":
        assert cache.get(name) is None
    assert not cache.is_asked
    assert len(warnings) == 1


def test_credentials_are_not_shown() -> None:
    pytest.importorskip("aiohttp")
    warnings: list[str] = []
    cache = opened(warnings, "http://me:a-secret-of-mine@127.0.0.1:1/cache?sig=another-secret")
    for name in "abcd":
        assert cache.get(name) is None
    (warning,) = warnings
    assert "http://127.0.0.1:1/cache" in warning
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KBUILD_REMOTE_CACHE": "/srv/cache"}, "is not an address"),
        ({"KBUILD_REMOTE_CACHE": "file://host/cache"}, "another machine"),
        (
            {"KBUILD_REMOTE_CACHE": "file:///c", "KBUILD_REMOTE_CACHE_MODE": "rw"},
            "KBUILD_REMOTE_CACHE_MODE: `rw` is not a mode",
        ),
        (
            {"KBUILD_REMOTE_CACHE": "https://host/c", "KBUILD_REMOTE_CACHE_MODE": "read-write"},
            "can only be read",
        ),
        (
            {"KBUILD_REMOTE_CACHE": "file:///c", "KBUILD_REMOTE_CACHE_SECRET": "short"},
            "KBUILD_REMOTE_CACHE_SECRET has fewer than 16 characters",
        ),
    ],
)
def test_bad_values(variables: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        remote_cache_of(variables, print)


def test_a_kind_of_address_that_nobody_knows_is_an_error() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match=r"KBUILD_REMOTE_CACHE: .*nowhere") as raised:
        opened([], "nowhere://bucket").connect()
    assert "s3://BUCKET/FOLDER" in raised.value.hint


def test_a_driver_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(_: object) -> None:
        raise ToolchainError("s3://bucket needs a driver of fsspec")

    monkeypatch.setattr("kbuild.mirror.remote_cache.open_mirror", no_driver)
    with pytest.raises(ToolchainError, match="KBUILD_REMOTE_CACHE: s3://bucket") as raised:
        opened([], "s3://bucket").connect()
    assert raised.value.hint == install_command("s3fs")


def test_no_variable_is_no_cache() -> None:
    assert remote_cache_of({}, print) is None
    assert remote_cache_of({"KBUILD_REMOTE_CACHE": " "}, print) is None

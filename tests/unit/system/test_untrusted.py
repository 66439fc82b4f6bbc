"""Files that other people and programs wrote, damaged in every way that the fuzzer found."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.dsl.tune.cases import read_shapes
from kbuild.ops.manifest import read_manifest as read_op_manifest
from kbuild.ops.tuned_tables import read_table_files
from kbuild.plan.metadata import MetadataError, read_metadata
from kbuild.publish.card.facts import read_results
from kbuild.publish.card.model import CardError
from kbuild.publish.hub.huggingface import HubClient
from kbuild.publish.hub.repository import Repo
from kbuild.system.errors import (
    ConfigError,
    DamagedFileError,
    HubError,
    KbuildError,
    ToolchainError,
    UsageError,
)
from kbuild.system.untrusted import (
    MAX_DOCUMENT_BYTES,
    parse_json,
    read_bytes,
    read_cache_file,
    read_json,
    reading,
)
from kbuild.toolchains.wheels.lock import read_lock

DEEP = '{"a":' * 1000 + "1" + "}" * 1000
DAMAGED = {
    "empty": "",
    "no JSON": "{",
    "no object": "[1]",
    "a text": '"format"',
    "a number": "1",
    "nothing in it": "{}",
    "nested": DEEP,
    "nested lists": "[" * 100_000,
    "half a character": '{"format": "\\ud800"}',
    "not a number": '{"format": NaN}',
    "a number that Python refuses": '{"format": ' + "9" * 5000 + "}",
}
NOT_UTF8 = b'{"format": "\xff"}'
ALL = {**{name: text.encode() for name, text in DAMAGED.items()}, "not UTF-8": NOT_UTF8}


@pytest.fixture(params=ALL.values(), ids=ALL)
def damaged(request: pytest.FixtureRequest) -> bytes:
    return request.param


def put(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


class TestHelpers:
    def test_the_error_names_the_file_and_the_reason(self, tmp_path):
        path = put(tmp_path, "a.json", "[]")
        with pytest.raises(DamagedFileError) as raised:
            read_json(path, "a lock")
        assert str(path) in raised.value.message
        assert "not a JSON object" in raised.value.message
        assert raised.value.hint

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (RecursionError(), "nested too deeply"),
            (MemoryError(), "asks for more memory than there is"),
            (KeyError("files"), "has no 'files'"),
            (ValueError("x" * 10_000), "x..."),
            (ValueError("\ud800"), "\\ud800"),
            (OverflowError(), "OverflowError"),
        ],
    )
    def test_whatever_goes_wrong(self, error, words):
        with pytest.raises(DamagedFileError) as raised, reading("a.bin", "a library"):
            raise error
        assert words in raised.value.message
        assert len(raised.value.message) < 1000
        raised.value.message.encode()

    def test_only_regular_files_are_opened(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
            with pytest.raises(DamagedFileError, match="not a regular file"):
                read_bytes(path, "a lock")

    def test_large_files_are_refused_before_they_are_read(self, tmp_path):
        with (tmp_path / "large").open("wb") as file:
            file.truncate(MAX_DOCUMENT_BYTES + 1)
        with pytest.raises(DamagedFileError, match="more than 32 MiB"):
            read_bytes(tmp_path / "large", "a lock")

    def test_damage(self, damaged):
        if damaged == b"{}":
            return
        with pytest.raises(DamagedFileError):
            parse_json(damaged, "a.json", "a lock")

    def test_remembered(self, tmp_path):
        path = put(tmp_path, "a.json", '{"a": 1}')
        assert read_cache_file(path, lambda told: told["a"]) == 1
        assert read_cache_file(path, lambda told: told["b"]) is None
        assert read_cache_file(tmp_path / "none", lambda told: told) is None


class TestDocuments:
    """What is asked for by name and damaged is an error of kbuild's with the file's name."""

    @pytest.mark.parametrize(
        ("name", "read", "kind"),
        [
            ("torch-cpu/metadata.json", lambda p: read_metadata(p.parent), MetadataError),
            ("lock.json", read_lock, ToolchainError),
            (
                "tuned/x.json",
                lambda p: read_table_files(p.parents[1], ("tuned/x.json",)),
                ConfigError,
            ),
            ("results/x.json", lambda p: read_results(p.parent), CardError),
            ("v/aot.json", lambda p: read_op_manifest(p.parent), UsageError),
        ],
    )
    def test_damage(self, tmp_path, damaged, name, read: Callable[[Path], object], kind):
        with pytest.raises(KbuildError) as raised:
            read(put(tmp_path, name, damaged))
        assert isinstance(raised.value, kind)

    def test_integers_without_end(self, tmp_path):
        with pytest.raises(ConfigError, match="an integer has more than 64 bits"):
            read_shapes(put(tmp_path, "a.toml", f"a = [{{M = 0x{'f' * 5000}}}]".encode()), ())


class TestHub:
    @pytest.mark.parametrize("path", ["../a", "a/../../b", "/etc/passwd", "", "."])
    def test_a_listing_that_leads_out_of_the_repository(self, path):
        pytest.importorskip("huggingface_hub")
        from huggingface_hub import RepoFile

        class Api:
            def list_repo_tree(self, *_, **__):
                return [RepoFile(path=path, size=1, oid="a")]

        with pytest.raises(HubError):
            HubClient(Api()).tree(Repo("o/k"), "a")

"""Toolchains in the shared cache: the same files, signed, or none at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.runtime.cache_entries import seal
from kbuild.runtime.processes import LocalRunner
from kbuild.runtime.readonly_tree import tree_digests
from kbuild.store import Recipe, Store
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.remote_entries import RemoteEntry
from tests.support.remote_caches import DictStore

RECIPE = Recipe("cuda", "13.0", {"wheel": "00"})
SECRET = b"s" * 16


def make(root: Path) -> dict[str, object]:
    (root / "bin").mkdir()
    (root / "bin" / "nvcc").write_bytes(b"#!/bin/sh\n")
    (root / "bin" / "nvcc").chmod(0o755)
    (root / "lib").symlink_to("bin")
    (root / "big").write_bytes(bytes(range(256)) * 70_000)  # of two pieces
    (root / "empty").write_bytes(b"")
    return {"sources": [{"filename": "x.whl", "fetched": 10}]}


def fails(root: Path) -> dict[str, object]:
    raise AssertionError("it was made again")


def installed(
    cache: Path,
    store: DictStore,
    maker: Callable[[Path], dict[str, object]] = make,
    secret: bytes = SECRET,
) -> Path:
    remote = store.cache(secret=secret)
    installer = WheelInstaller(LocalRunner(), Store(cache / "store"), remote=remote)
    entry = installer.ensure(RECIPE, maker)
    remote.finish()
    assert not entry.differences()
    assert entry.facts["sources"][0]["filename"] == "x.whl"
    return entry.root


def test_another_machine_unpacks_what_one_has_fetched(tmp_path: Path) -> None:
    store = DictStore()
    first = installed(tmp_path / "a", store)
    second = installed(tmp_path / "b", store, fails)
    assert tree_digests(first) == tree_digests(second)
    assert (second / "bin" / "nvcc").stat().st_mode & 0o777 == 0o555
    assert len([path for path in store.files if "/pieces/" in path]) == 2
    assert not any(str(tmp_path).encode() in data for data in store.files.values())


def test_without_a_secret_nothing_is_shared(tmp_path: Path) -> None:
    store = DictStore()
    installed(tmp_path / "a", store, secret=b"")
    assert not store.files
    installed(tmp_path / "a", store)
    installed(tmp_path / "b", store, secret=b"")
    assert not any("/toolchains/" in path for path in store.reads)


def test_a_missing_piece_is_no_entry(tmp_path: Path) -> None:
    store = DictStore()
    installed(tmp_path / "a", store)
    del store.files[max(path for path in store.files if "/pieces/" in path)]
    installed(tmp_path / "b", store)


def test_what_names_this_machine_is_not_sent(tmp_path: Path) -> None:
    def makes_place(root: Path) -> dict[str, object]:
        (root / "nvcc.profile").write_text(f"TOP={tmp_path}/a/store/cuda\n")
        return {"sources": [{"filename": "x.whl", "fetched": 10}]}

    store = DictStore()
    installed(tmp_path / "a", store, makes_place)
    assert not store.files


@pytest.mark.parametrize(
    "change",
    [
        {"members": {"../outside": "sha256:00"}, "sizes": {"../outside": 4}},
        {"members": {"/outside": "link:/etc"}, "sizes": {"/outside": 0}},
        {"members": {"a": "sha256:00"}, "sizes": {"a": 1 << 40}},
        {"members": {"a": "sha256:00"}, "sizes": {"a": 4}},
        {"members": {"a": "link:/", "a/b": "sha256:00"}, "sizes": {"a": 0, "a/b": 4}},
        {"members": {"a": "sha256:00"}, "sizes": {"a": -4}},
        {"pieces": ["../../x"]},
        {"recipe": {}},
        {"facts": 3},
    ],
)
def test_lists_that_are_not_to_be_unpacked(tmp_path: Path, change: dict[str, object]) -> None:
    store = DictStore()
    installed(tmp_path / "a", store)
    name = f"toolchains/{RECIPE.name}"
    data = store.cache(secret=SECRET).get(name)
    assert data is not None
    forged = json.dumps(json.loads(data) | change).encode()
    store.files[f"kbuild-1/{name}"] = seal(name, forged, SECRET)
    root = tmp_path / "b" / "root"
    root.mkdir(parents=True)
    assert RemoteEntry(store.cache(secret=SECRET), RECIPE).fetch(root) is None
    assert [path.name for path in (tmp_path / "b").rglob("*")] == ["root"]

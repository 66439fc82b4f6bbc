from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbuild.system.errors import ToolchainError
from kbuild.system.readonly_tree import FolderInUseError, locked_tree
from kbuild.system.store import Recipe, Store, StoreEntry

RECIPE = Recipe("torch", "2.14.1", {"wheel": "abc"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make(root: Path) -> Mapping[str, Any]:
    (root / "bin").mkdir()
    (root / "bin" / "nvcc").write_text("#!/bin/sh\n")
    (root / "bin" / "nvcc").chmod(0o755)
    (root / "lib").mkdir()
    (root / "lib64").symlink_to("lib")
    return {"sources": [{"filename": "torch.whl", "fetched": 12}]}


def test_made_once_and_described(store: Store) -> None:
    made = []

    def counted(root: Path) -> Mapping[str, Any]:
        made.append(root)
        return make(root)

    first, second = store.ensure(RECIPE, counted), store.ensure(RECIPE, counted)
    assert first == second
    assert len(made) == 1
    assert first.facts["recipe"] == RECIPE.to_json()
    assert first.facts["sources"][0]["fetched"] == 12
    assert first.members["lib64"] == "link:lib"
    assert first.members["bin/nvcc"].endswith(":x")
    assert [entry.name for entry in store.entries()] == [RECIPE.name]
    assert (first.root / "bin" / "nvcc").stat().st_mode & 0o222 == 0
    assert (first.root / "bin").stat().st_mode & 0o222 == 0


def test_interrupted_leaves_nothing(store: Store) -> None:
    def interrupted(root: Path) -> Mapping[str, Any]:
        make(root)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.ensure(RECIPE, interrupted)
    assert store.find(RECIPE) is None
    assert store.entries() == ()
    assert list((store.root / ".partial").iterdir()) == []


def test_killed_installation_is_started_afresh(store: Store) -> None:
    left = store.root / ".partial" / RECIPE.name / "root"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    entry = store.ensure(RECIPE, make)
    assert not (entry.root / "half").exists()


def test_one_of_many_makes_it(store: Store) -> None:
    made, entries = [], []

    def slow(root: Path) -> Mapping[str, Any]:
        made.append(threading.get_ident())
        time.sleep(0.05)
        return make(root)

    threads = [
        threading.Thread(target=lambda: entries.append(Store(store.root).ensure(RECIPE, slow)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(entries)) == 1
    assert len(entries) == 6


def test_verify_finds_every_change(store: Store) -> None:
    entry = store.ensure(RECIPE, make)
    assert entry.differences() == ()
    for folder in (entry.root, entry.root / "bin", entry.root / "lib"):
        folder.chmod(0o755)
    (entry.root / "bin" / "nvcc").chmod(0o755)
    (entry.root / "bin" / "nvcc").write_text("other")
    (entry.root / "lib" / "new").write_text("")
    (entry.root / "lib64").unlink()
    assert entry.differences() == (
        "`bin/nvcc` was changed",
        "`lib/new` was added",
        "`lib64` is gone",
    )


def test_prune_by_age(store: Store) -> None:
    old, new = store.ensure(RECIPE, make), store.ensure(Recipe("cuda", "13.0", {}), make)
    long_ago = time.time() - 40 * 86400
    os.utime(old.folder / "entry.json", (long_ago, long_ago))
    assert store.prune(30, dry_run=True) == (old.name,)
    assert len(store.entries()) == 2
    assert store.prune(30) == (old.name,)
    assert store.entries() == (new,)
    assert store.prune(0) == (new.name,)
    assert store.entries() == ()


HOLDER = """
import sys
from pathlib import Path
from kbuild.system.readonly_tree import locked_tree
with locked_tree(Path(sys.argv[2]), exclusive=sys.argv[1] == "alone"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(store: Store, how: str) -> Iterator[None]:
    """Another process uses the store, or has it to itself."""
    with subprocess.Popen(  # noqa: TID251
        (sys.executable, "-c", HOLDER, how, str(store.root)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("end\n")


def test_nothing_is_pruned_while_another_process_uses_the_store(store: Store) -> None:
    entry = store.ensure(RECIPE, make)
    with held_elsewhere(store, "shared"):
        with store.in_use(), pytest.raises(ToolchainError, match="nothing was removed"):
            store.prune(0)
        with pytest.raises(ToolchainError):
            store.prune(0)
        assert store.prune(0, dry_run=True) == (entry.name,)
        assert store.find(RECIPE) == entry
    assert store.prune(0) == (entry.name,)


def test_prune_decides_what_is_unused_while_nobody_else_can_change_it(store: Store) -> None:
    class WatchedStore(Store):
        """Fails to list entries that another command could use or remove meanwhile."""

        def entries(self) -> tuple[StoreEntry, ...]:
            with pytest.raises(FolderInUseError), locked_tree(self.root, exclusive=True):
                pass
            return super().entries()

    entry = store.ensure(RECIPE, make)
    watched = WatchedStore(store.root)
    assert watched.prune(0, dry_run=True) == (entry.name,)
    assert watched.prune(0) == (entry.name,)


def test_who_uses_the_store_waits_for_the_end_of_pruning(store: Store) -> None:
    entered = threading.Event()

    def use() -> None:
        with store.in_use():
            entered.set()

    with held_elsewhere(store, "alone"):
        waiting = threading.Thread(target=use)
        waiting.start()
        assert not entered.wait(0.3)
    waiting.join(10)
    assert entered.is_set()


def test_an_installation_removes_what_killed_ones_left_but_none_under_way(store: Store) -> None:
    left, busy = (store.root / ".partial" / name / "root" for name in ("of-old-wheels", "busy"))
    for folder in (left, busy):
        folder.mkdir(parents=True)
        folder.chmod(0o555)
    with store._lock("busy"):
        store.ensure(RECIPE, make)
    assert [path.name for path in (store.root / ".partial").iterdir()] == ["busy"]


def test_an_entry_is_on_the_disk_before_it_has_its_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync_tree(folder: Path) -> None:
        assert store.find(RECIPE) is None
        assert (folder / "entry.json").is_file()
        synced.append(folder)

    monkeypatch.setattr("kbuild.system.store.sync_tree", sync_tree)
    store.ensure(RECIPE, make)
    assert len(synced) == 1

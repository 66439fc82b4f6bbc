"""Which changes of a folder are seen."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kbuild.cli.dev import FolderWatcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.cpp", "sub/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


def test_what_is_a_change(root: Path) -> None:
    watcher = FolderWatcher(root)
    assert watcher.changes() == ()
    (root / "a.cpp").write_text("22")
    assert watcher.has_changed()
    assert watcher.changes() == ("a.cpp",)
    assert not watcher.has_changed()
    (root / "draft").write_text("3")
    (root / "draft").replace(root / "sub" / "b.py")
    (root / "new.h").touch()
    assert watcher.changes() == ("new.h", "sub/b.py")
    (root / "a.cpp").unlink()
    assert watcher.changes() == ("a.cpp",)
    assert watcher.changes() == ()


def test_what_is_none(root: Path) -> None:
    watcher = FolderWatcher(root)
    for name in (".git/x", ".kbuild/y", "build/z", "sub/__pycache__/b.pyc", "a.cpp~", ".a.cpp.swp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1")
    (root / ".kbuild" / "link").hardlink_to(root / "a.cpp")  # changes its ctime
    (root / "dangling").symlink_to("nowhere")
    assert watcher.changes() == ()


def test_waiting_ends_with_a_change(root: Path) -> None:
    watcher = FolderWatcher(root)
    timer = threading.Timer(0.3, lambda: (root / "a.cpp").write_text("333"))
    timer.start()
    try:
        assert watcher.wait() == ("a.cpp",)
    finally:
        timer.join()

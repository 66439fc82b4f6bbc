import os
from pathlib import Path

import pytest

from kbuild.system.errors import ConfigError
from kbuild.system.file_state import all_unchanged
from kbuild.system.sourcetree import SourceTree


def test_what_was_looked_at_decides_whether_it_changed(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("1")
    (tmp_path / "unseen").write_text("1")
    tree = SourceTree(tmp_path)
    assert tree.is_file("seen")
    assert not tree.is_file("missing")
    (tmp_path / "unseen").write_text("22")
    assert all_unchanged(tmp_path, tree.observed)
    (tmp_path / "missing").write_text("now here")
    assert not all_unchanged(tmp_path, tree.observed)


def test_a_new_file_in_a_walked_folder_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    tree = SourceTree(tmp_path)
    assert tree.walk("ext") == ()
    os.utime(tmp_path / "ext", ns=(1, 1))
    assert not all_unchanged(tmp_path, tree.observed)


def test_a_link_out_of_the_project_is_outside(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "secret.h").write_text("")
    (tmp_path / "p" / "link.h").symlink_to(tmp_path / "secret.h")
    tree = SourceTree(tmp_path / "p")
    assert not tree.is_inside("link.h")
    assert not tree.is_inside("../secret.h")
    assert tree.is_inside("a/b.h")


@pytest.fixture
def odd(tmp_path: Path) -> SourceTree:
    """A project with every kind of thing that is not taken, and some that are."""
    root = tmp_path / "project"
    (root / "ext" / "sub").mkdir(parents=True)
    (root / "ext" / "plain.py").write_text("plain")
    (root / "ext" / "sub" / "again.py").symlink_to("../plain.py")
    (root / "ext" / "gone.py").symlink_to("nothing.py")
    (root / "ext" / "here").symlink_to("sub")
    (root / "ext" / "ring.py").symlink_to("ring.py")
    (root / "ext" / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(root / "ext" / "pipe.py")
    (root / "ext" / "pipe-too.py").symlink_to("pipe.py")
    (tmp_path / "secret.py").write_text("secret")
    (root / "ext" / "far.py").symlink_to(tmp_path / "secret.py")
    (root / "ext" / "away").symlink_to(tmp_path)
    return SourceTree(root)


REFUSED = {
    "ext/away": "`ext/away` leads out of the project",
    "ext/far.py": "`ext/far.py` leads out of the project",
    "ext/gone.py": "`ext/gone.py` is a link that leads nowhere (No such file or directory)",
    "ext/pipe-too.py": "`ext/pipe-too.py` is a named pipe, not a file",
    "ext/pipe.py": "`ext/pipe.py` is a named pipe, not a file",
    "ext/ring.py": "`ext/ring.py` is a link that leads nowhere (Too many levels of symbolic links)",
    "ext/zero.py": "`ext/zero.py` leads out of the project",
}


def test_only_files_of_the_project_are_taken(odd: SourceTree) -> None:
    assert odd.walk("ext") == ("ext/plain.py", "ext/sub/again.py")
    assert odd.read_text("ext/sub/again.py") == "plain"
    assert {path: fault.message for path, fault in odd.faults("ext")} == REFUSED
    assert odd.linked_folders("ext") == ("ext/here",)


@pytest.mark.parametrize("path", REFUSED)
def test_nothing_else_can_be_read(odd: SourceTree, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        odd.read_bytes(path)
    (problem,) = refused.value.problems
    assert problem.message == REFUSED[path]
    assert problem.file.endswith(path)
    assert problem.hint


def test_a_file_behind_a_folder_that_leads_out(odd: SourceTree) -> None:
    with pytest.raises(ConfigError, match=r"`ext/away/secret.py` leads out of the project"):
        odd.read_bytes("ext/away/secret.py")


def test_texts_have_a_longest_length(odd: SourceTree) -> None:
    (odd.root / "long.py").write_bytes(b"#" * 11)
    assert len(odd.read_bytes("long.py", limit=11)) == 11
    with pytest.raises(ConfigError, match=r"`long\.py` has more than"):
        odd.read_bytes("long.py", limit=10)

import os
from pathlib import Path

from kbuild.includes import mentions, reachable
from kbuild.sourcetree import SourceTree, unchanged


def test_what_was_looked_at_decides_whether_it_changed(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("1")
    (tmp_path / "unseen").write_text("1")
    tree = SourceTree(tmp_path)
    assert tree.is_file("seen")
    assert not tree.is_file("missing")
    (tmp_path / "unseen").write_text("22")
    assert unchanged(tmp_path, tree.observed)
    (tmp_path / "missing").write_text("now here")
    assert not unchanged(tmp_path, tree.observed)


def test_a_new_file_in_a_walked_folder_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir()
    tree = SourceTree(tmp_path)
    assert tree.walk("ext") == ()
    os.utime(tmp_path / "ext", ns=(1, 1))
    assert not unchanged(tmp_path, tree.observed)


def test_a_link_out_of_the_project_is_outside(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "secret.h").write_text("")
    (tmp_path / "p" / "link.h").symlink_to(tmp_path / "secret.h")
    tree = SourceTree(tmp_path / "p")
    assert not tree.is_inside("link.h")
    assert not tree.is_inside("../secret.h")
    assert tree.is_inside("a/b.h")


def test_includes_are_followed_through_the_project_only(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "inc").mkdir()
    (tmp_path / "k/a.cpp").write_text('#include "b.h"\n#include <vector>\n#  include "deep.h"\n')
    (tmp_path / "k/b.h").write_text('#include "a.cpp"\n#include "../../outside.h"\n')
    (tmp_path / "inc/deep.h").write_text("TORCH_EXTENSION_NAME\n")
    tree = SourceTree(tmp_path)
    assert set(reachable(tree, "k/a.cpp", ["inc"])) == {"k/a.cpp", "k/b.h", "inc/deep.h"}
    assert mentions(tree, ["inc/deep.h"], "TORCH_EXTENSION_NAME")
    assert not mentions(tree, ["inc/deep.h"], "TORCH_EXTENSION")

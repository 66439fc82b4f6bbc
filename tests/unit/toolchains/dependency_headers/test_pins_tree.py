from __future__ import annotations

from pathlib import Path

from kbuild.toolchains.dependency_headers.pins import (
    dependency_headers,
    digest_of_folders,
    pin_of,
    tree_mismatch,
)
from tests.support.cutlass_trees import make_tree

PIN = pin_of("cutlass_3_8")


def test_another_release(tmp_path: Path) -> None:
    assert tree_mismatch(PIN, make_tree(tmp_path, "4.0.0")) == "is CUTLASS 4.0.0, not 3.8.0"


def test_a_dependency_whose_headers_do_not_say_their_release(tmp_path: Path) -> None:
    pin = pin_of("metal-cpp")
    (tmp_path / "Metal").mkdir()
    (tmp_path / "Metal" / "Metal.hpp").write_text("")
    assert tree_mismatch(pin, tmp_path) is None
    source = dependency_headers(pin, tmp_path, "", "")
    assert (source.fact, source.include_dirs) == ("KBUILD_METAL_CPP_INCLUDE_DIRS", (tmp_path,))


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    (two / "README").write_text("not a header")
    (two / "include" / ".cache").mkdir()
    (two / "include" / ".cache" / "x").write_text("")
    digests = [
        digest_of_folders(dependency_headers(PIN, root, "", "").include_dirs) for root in (one, two)
    ]
    assert digests[0] == digests[1]
    (two / "include/cutlass/cutlass.h").write_text("// edited\n")
    assert digest_of_folders(dependency_headers(PIN, two, "", "").include_dirs) != digests[0]

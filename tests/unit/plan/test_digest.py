"""The digest counts exactly the files that the `kernels` client counts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kbuild.plan.digest import differences, digest_variant, unaccounted, validate_accounted
from kbuild.system.errors import CheckError


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    root = tmp_path / "torch-cpu"
    contents = {
        "__init__.py": "a",
        "metadata.json": "no",
        "metadata.json.sigstore": "no",
        "sub/metadata.json": "counted",
        "sub/metadata.json.sigstore": "counted",
        ".hidden": "counted",
        ".folder/file": "counted",
        "old.pyc": "no",
        "sub/x.pyo": "counted",
        "__pycache__/a.cpython-311.pyc": "no",
        "sub/__pycache__/data.txt": "no",
        "name with space/ü.txt": "counted",
        "empty": "",
    }
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far.txt").write_text("far")
    (root / "linked.txt").symlink_to(outside / "far.txt")
    (root / "linked-folder").symlink_to(outside)
    return root


COUNTED = [
    ".folder/file",
    ".hidden",
    "__init__.py",
    "empty",
    "linked.txt",
    "name with space/ü.txt",
    "sub/metadata.json",
    "sub/metadata.json.sigstore",
    "sub/x.pyo",
]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_equal_to_the_clients(variant: Path, algorithm: str) -> None:
    rust = pytest.importorskip("kernels._rust")
    chosen = getattr(rust.DigestAlgorithm, algorithm.upper())
    theirs = rust.Digest.hash_variant(chosen, variant)
    assert digest_variant(variant, algorithm)["files"] == theirs.files


def test_differences(variant: Path) -> None:
    recorded = digest_variant(variant)
    assert differences(variant, recorded) == ()
    (variant / "__init__.py").write_text("changed")
    (variant / "empty").unlink()
    (variant / "new").write_text("")
    assert differences(variant, recorded) == (
        "`__init__.py` differs from the digest",
        "`empty` is gone",
        "`new` is not in the digest",
    )


def test_whatever_is_not_counted_is_named(variant: Path) -> None:
    (variant / "here").symlink_to("sub")
    (variant / "inside.txt").symlink_to("empty")
    (variant / "nowhere").symlink_to("nothing")
    (variant / "none" / "at all").mkdir(parents=True)
    (variant / "zero").symlink_to("/dev/zero")
    os.mkfifo(variant / "sub/pipe.py")
    os.mknod(variant / "socket", stat.S_IFSOCK | 0o600)  # `bind` takes 108 bytes of a path
    assert [str(stray) for stray in unaccounted(variant)] == [
        "`__pycache__/a.cpython-311.pyc` is bytecode",
        "`here` is a link to a folder",
        "`linked-folder` is a link that leads out of the folder",
        "`linked.txt` is a link that leads out of the folder",
        "`none/at all` is an empty folder",
        "`nowhere` is a link that leads nowhere",
        "`old.pyc` is bytecode",
        "`socket` is a socket",
        "`sub/__pycache__/data.txt` lies in a `__pycache__`",
        "`sub/pipe.py` is a named pipe",
        "`zero` is a link that leads out of the folder",
    ]
    assert list(digest_variant(variant)["files"]) == sorted([*COUNTED, "inside.txt"])


def test_a_pipe_in_place_of_the_metadata(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")
    os.mkfifo(tmp_path / "metadata.json")
    assert [str(stray) for stray in unaccounted(tmp_path)] == ["`metadata.json` is a named pipe"]


def test_a_refusal_names_everything(variant: Path) -> None:
    with pytest.raises(CheckError) as refused:
        validate_accounted(variant)
    assert {finding["where"] for finding in refused.value.findings} == {
        "__pycache__/a.cpython-311.pyc",
        "linked-folder",
        "linked.txt",
        "old.pyc",
        "sub/__pycache__/data.txt",
    }
    assert "`old.pyc` is bytecode" in str(refused.value)

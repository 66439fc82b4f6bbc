"""The digest counts exactly the files that the `kernels` client counts."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from kbuild.digest import differences, digest_variant


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


def test_counted_files(variant: Path) -> None:
    assert list(digest_variant(variant)["files"]) == COUNTED


def test_values_are_standard_base64(variant: Path) -> None:
    expected = base64.b64encode(hashlib.sha256(b"far").digest()).decode()
    assert digest_variant(variant)["files"]["linked.txt"] == expected


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_equal_to_the_clients(variant: Path, algorithm: str) -> None:
    rust = pytest.importorskip("kernels._rust")
    chosen = getattr(rust.DigestAlgorithm, algorithm.upper())
    theirs = rust.Digest.hash_variant(chosen, variant)
    assert digest_variant(variant, algorithm)["files"] == theirs.files


def test_unknown_algorithm(variant: Path) -> None:
    with pytest.raises(ValueError, match="md5"):
        digest_variant(variant, "md5")


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

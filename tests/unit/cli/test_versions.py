"""How command lines name versions of kernels; `versions`, `diff` and `verify-mirror` of mirrors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.cli.versions import _split_mirror_path, _split_version
from kbuild.hub.repository import Repo
from kbuild.mirror.layout import VersionPaths
from tests.support.mirrors import CPU, PLACE, built, layout, metadata, room

API = "__all__ = ['relu']\ndef relu(x): ...\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("org/relu@v1", ("org/relu", "v1")),
        ("build", ("build", None)),
        ("s3://b/k/org/relu@v1", ("s3://b/k/org/relu", "v1")),
        ("sftp://me:pass@host/k", ("sftp://me:pass@host/k", None)),
        ("sftp://me@host", ("sftp://me@host", None)),
        ("sftp://me:p@ss@host/k/org/relu@v2", ("sftp://me:p@ss@host/k/org/relu", "v2")),
        ("/a@b/c", ("/a@b/c", None)),
        ("org/relu@try/v1", ("org/relu@try/v1", None)),
    ],
)
def test_versions_behind_an_at(text: str, parts: tuple[str, str | None]) -> None:
    assert _split_version(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3://b/k/org/relu", ("s3://b/k", "org", "relu")),
        ("mirror/org/relu/", ("mirror", "org", "relu")),
        ("org/relu", (".", "org", "relu")),
        ("/org/relu", ("/", "org", "relu")),
        ("s3://bucket", ("", "", "")),
        ("build", ("", "", "")),
    ],
)
def test_kernels_at_the_end(text: str, parts: tuple[str, str, str]) -> None:
    assert _split_mirror_path(text) == parts


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """Two versions of one kernel, and another kernel."""
    found = room("folder", tmp_path)
    for number, name in enumerate(("v1", "v2")):
        files = {CPU: {"__init__.py": API, "n": str(number), "metadata.json": metadata(number + 1)}}
        found.publish(layout(tmp_path / name, files), VersionPaths(PLACE.repo, name))
    found.publish(layout(tmp_path / "other", {CPU: {}}), VersionPaths(Repo("org/gelu"), "v1"))
    return tmp_path / "mirror"


def test_diff_in_a_mirror(kbuild, mirror: Path) -> None:
    where = f"{mirror}/org/relu"
    told = kbuild("diff", f"{where}@v1", where, "--json").json
    assert (told["old"], told["new"]) == (f"{where}@v1", f"{where}@v2")
    assert [v["name"] for v in told["variants"]] == [CPU]
    assert kbuild("diff", f"{where}@v1", where).code == 0
    assert kbuild("diff", f"{where}@v1", where, "--exit-code").code == 1
    assert kbuild("diff", where, where, "--exit-code").code == 0


def test_diff_with_a_build(kbuild, mirror: Path, tmp_path: Path) -> None:
    files = {CPU: {"__init__.py": "__all__ = []\n"}}
    folder = built(tmp_path / "mine", files)[0].parent
    out = kbuild("diff", f"file://{mirror}/org/relu@v1", str(folder)).out
    assert "`relu` is gone (breaks callers)" in out
    assert "must be raised to at least 2" in out


def test_a_mirror_of_several_kernels_is_no_version(kbuild, mirror: Path) -> None:
    done = kbuild("diff", str(mirror), str(mirror))
    assert done.code == 2
    assert f"{mirror}/org/gelu" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere", "`nowhere` does not exist"),
        ("hub:relu", "is not a kernel on the Hub"),
        ("memory://nothing-here", "is not a mirror of kernels"),
        ("memory://nothing-here/org/relu@v1", "is not a mirror of kernels"),
    ],
)
def test_what_is_nowhere(kbuild, text: str, words: str) -> None:
    done = kbuild("diff", text, text)
    assert done.code == 2
    assert words in done.err


def test_verify_mirror(kbuild, mirror: Path) -> None:
    assert kbuild("verify-mirror", str(mirror)).code == 0
    told = kbuild("verify-mirror", str(mirror), "--json").json
    assert [(v["kernel"], v["version"]) for v in told] == [
        ("org/gelu", "v1"),
        ("org/relu", "v1"),
        ("org/relu", "v2"),
    ]
    (mirror / f"org/relu/v1/build/{CPU}/n").write_text("7")
    done = kbuild("verify-mirror", f"{mirror}/org/relu")
    assert done.code == 6
    assert f"org/relu@v1: `build/{CPU}/n` differs from the manifest" in done.err
    assert kbuild("verify-mirror", f"{mirror}/org/relu@v2").code == 0


def test_verify_mirror_of_a_build(kbuild, tmp_path: Path) -> None:
    built(tmp_path, {CPU: {}})
    done = kbuild("verify-mirror", str(tmp_path))
    assert done.code == 2
    assert "is not a mirror" in done.err


def test_versions_of_a_mirror(kbuild, mirror: Path) -> None:
    told = kbuild("versions", f"{mirror}/org/relu", "--json").json
    assert [entry["version"] for entry in told] == ["v2", "v1"]
    assert [v["variant"] for v in told[0]["variants"]] == [CPU]
    assert told[0]["date"].startswith("2026-01-01T12:00:00")
    assert json.dumps(told)  # nothing in it that JSON does not have

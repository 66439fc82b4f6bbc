"""Changes of the Python package that break callers of the published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbuild.publish.hub.breaking_changes import breaking_change_warnings
from kbuild.publish.hub.repository import RemoteFile, Repo, read_upload_file

VARIANT = "build/torch-cpu"


class FakeHub:
    """Knows the files of one commit."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = {"README.md": "", f"{VARIANT}/metadata.json": "{}", **files}
        self.asked: list[str] = []

    def tree(self, repo: Repo, commit: str) -> dict[str, RemoteFile]:
        read = {path: read_upload_file(path, self.content(path)) for path in self.files}
        return {path: RemoteFile(file.size, file.blob) for path, file in read.items()}

    def read(self, repo: Repo, commit: str, path: str) -> bytes:
        self.asked.append(path)
        return self.content(path)

    def content(self, path: str) -> bytes:
        return self.files[path].encode(errors="surrogateescape")


def test_files_that_are_the_same_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("def f(): ...")
    hub: Any = FakeHub({f"{VARIANT}/__init__.py": "def f(): ...", f"{VARIANT}/_ops.py": "x = 1"})
    assert not list(breaking_change_warnings(hub, Repo("org/relu"), "0" * 40, tmp_path, "relu"))
    assert hub.asked == []


def warnings(tmp_path: Path, old: dict[str, str] | str, new: str, inside: str = "") -> list[str]:
    files = {"__init__.py": old} if isinstance(old, str) else old
    package = tmp_path / "torch-cpu"
    package.mkdir()
    (package / "__init__.py").write_text(new)
    hub: Any = FakeHub({f"{VARIANT}/{inside}{name}": text for name, text in files.items()})
    return list(breaking_change_warnings(hub, Repo("org/relu"), "0" * 40, package, "relu"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("def f(x, y=1): ...", "def f(x): ...", "`f(y)`: parameter was removed"),
        ("def f(x, y=1): ...", "def f(x, y): ...", "`f(y)`: parameter is now required"),
        ("def f(x, y): ...", "def f(y, x): ...", "`f(x)`: positional parameter was moved"),
        ("def f(x): ...", "def f(x, y): ...", "`f(y)`: parameter was added as required"),
        ("def f(x): ...", "def f(*, x): ...", "`f(x)`: parameter kind was changed"),
        ("def f(x): ...\ndef g(x): ...", "def g(x): ...", "`f`: public object was removed"),
        ("def f(x): ...", "class f: ...", "`f`: public object points to a different kind"),
        ("class A:\n    def g(self): ...", "class A: ...", "`A.g`: public object was removed"),
    ],
)
def test_what_breaks_callers(tmp_path: Path, old: str, new: str, expected: str) -> None:
    found = warnings(tmp_path, old, new)
    assert any(line.startswith(expected) for line in found), found
    assert all(line.endswith(", which breaks callers of the published package") for line in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(x): ...", "def f(x): ..."),
        ("def f(x): ...", "def f(x, y=1): ..."),
        ("def f(x, y=1) -> int: ...", "def f(x, y=2) -> float: ..."),
        ("def _f(x): ...", ""),
        ("LIMIT = 1\n__version__ = '1'", "LIMIT = 2\n__version__ = '2'"),
        ("__all__ = ['f']\ndef f(x): ...\ndef g(): ...", "__all__ = ['f']\ndef f(x): ..."),
        ("raise SystemExit('imported')", "raise SystemExit('imported')"),
        ({}, "def f(x): ..."),
    ],
)
def test_what_does_not(tmp_path: Path, old: dict[str, str] | str, new: str) -> None:
    assert warnings(tmp_path, old, new) == []


def test_a_package_inside_the_variant(tmp_path: Path) -> None:
    assert len(warnings(tmp_path, "def f(): ...", "", inside="relu/")) == 1


@pytest.mark.parametrize("source", ["def f(:", "x = 1\0", f"x = {'-' * 9000}1", "# é\udcff"])
def test_a_published_package_that_does_not_parse(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], source: str
) -> None:
    (line,) = warnings(tmp_path, source, "def f(): ...")
    assert line.startswith("the Python package cannot be compared with the published one")
    assert capfd.readouterr() == ("", "")


def test_without_griffe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kbuild.publish.hub.breaking_changes.importlib.util.find_spec", lambda _: None
    )
    (line,) = warnings(tmp_path, "def f(): ...", "")
    assert "pip install griffe" in line

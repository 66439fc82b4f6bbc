"""Another kbuild is never taken for this one, and this one is recognised without reading it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.system import code_digest as module
from kbuild.system.code_digest import package_digest

AN_HOUR = 3600 * 10**9


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_known", {})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package with templates beside it, that nobody has touched for an hour."""
    root = tmp_path / "checkout" / "kbuild"
    for name in ("__init__.py", "config/rules.py", "data/versions.toml", "../templates/page.html"):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{file.name}\n")
    now = module.time.time_ns()
    monkeypatch.setattr(module.time, "time_ns", lambda: now + AN_HOUR)
    return root


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files that were read."""
    read: list[str] = []
    hashed = module._sha256

    def seen(path: str) -> str:
        read.append(Path(path).name)
        return hashed(path)

    monkeypatch.setattr(module, "_sha256", seen)
    return read


def again(cache: Path | None, package: Path) -> str:
    """What another process would find."""
    module._known.clear()
    return package_digest(cache, package)


def replaced(file: Path) -> None:
    """Other bytes of the same size and time, put in place by a rename."""
    status, draft = file.stat(), file.with_suffix(".new")
    draft.write_bytes(file.read_bytes()[::-1])
    os.utime(draft, ns=(status.st_atime_ns, status.st_mtime_ns))
    draft.replace(file)


CHANGES = {
    "a module": lambda root: (root / "config" / "rules.py").write_text("other\n"),
    "of the same size and time": lambda root: replaced(root / "config" / "rules.py"),
    "a data file": lambda root: (root / "data" / "versions.toml").write_text("other\n"),
    "a template": lambda root: (root.parent / "templates" / "page.html").write_text("other\n"),
    "a new module": lambda root: (root / "config" / "new.py").write_text(""),
    "one that is gone": lambda root: (root / "config" / "rules.py").unlink(),
    "another name": lambda root: (root / "__init__.py").rename(root / "init.py"),
}


@pytest.mark.parametrize(
    ("change", "keeps"),
    [*((change, True) for change in CHANGES), ("of the same size and time", False)],
)
def test_every_change_is_seen(package: Path, tmp_path: Path, change: str, *, keeps: bool) -> None:
    cache = tmp_path / "cache" if keeps else None
    before = again(cache, package)
    assert again(cache, package) == before
    CHANGES[change](package)
    assert again(cache, package) != before


def test_a_file_that_changed_a_moment_ago_is_read_every_time(
    package: Path, tmp_path: Path, reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change could leave its times as they are."""
    moment = (package / "__init__.py").stat().st_ctime_ns + 1
    monkeypatch.setattr(module.time, "time_ns", lambda: moment)
    for count in (4, 8):
        again(tmp_path / "cache", package)
        assert len(reads) == count


def test_a_library_that_judges_is_a_part_of_it(package: Path, tmp_path: Path, monkeypatch) -> None:
    site = tmp_path / "site"
    renewed(site, "pydantic", "98.0")
    monkeypatch.syspath_prepend(str(site))
    before = again(tmp_path / "cache", package)
    renewed(site, "pydantic", "99.0")
    assert again(tmp_path / "cache", package) != before


@pytest.mark.parametrize("file", ["theirs/__init__.py", "theirs.py"])
def test_a_plug_in_is_a_part_of_it(package: Path, tmp_path: Path, monkeypatch, file: str) -> None:
    module, cache = tmp_path / "site" / file, tmp_path / "cache"
    module.parent.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    seen = [again(cache, package)]
    module.write_text("")
    folder = renewed(tmp_path / "site", "theirs", "1.0")
    (folder / "entry_points.txt").write_text("[kbuild.backends]\ntheirs = theirs:Backend\n")
    seen.append(again(cache, package))
    module.write_text("class Backend: ...\n")
    seen.append(again(cache, package))
    assert len(set(seen)) == 3


def renewed(site: Path, name: str, version: str) -> Path:
    """What an installer leaves of that release, and nothing of others."""
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder

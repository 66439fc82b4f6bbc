import errno
import os
from pathlib import Path

import pytest

from kbuild.pipeline import package
from kbuild.plan.generate.project import metadata_of
from kbuild.plan.plan import ToolchainSummary
from kbuild.system.errors import FileConflictError
from kbuild.system.workspace import Workspace
from tests.support.plans import plan_of


def variant(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text('{"id": "_k_cpu_1"}')
    (folder / "__init__.py").write_text(content)
    return folder


def test_the_new_directory_replaces_the_old_one(tmp_path: Path) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")
    (target / "stale.py").write_text("gone after the next build")
    package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert sorted(path.name for path in target.iterdir()) == ["__init__.py", "metadata.json"]
    assert (target / "__init__.py").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["torch-cuda"]


def test_something_else_in_its_place_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    target.mkdir(parents=True)
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(FileConflictError):
        package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert (target / "thesis.txt").read_text() == "years of work"


@pytest.fixture(params=["exchanging", "renaming"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a directory is replaced: as this system can, and as those that cannot exchange."""
    if request.param == "renaming":
        monkeypatch.setattr(package, "exchange_paths", lambda *_: False)
    return str(request.param)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_directory_is_exchanged_where_the_kernel_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(fresh: Path, target: Path) -> bool:
        assert (fresh / "__init__.py").read_text() == "new"
        assert (target / "__init__.py").read_text() == "old"
        target.rename(tmp_path / "between")
        fresh.rename(target)
        (tmp_path / "between").rename(fresh)
        return True

    target = variant(tmp_path / "build" / "torch-cuda", "old")
    monkeypatch.setattr(package, "exchange_paths", exchange)
    package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert (target / "__init__.py").read_text() == "new"
    assert names(target.parent) == ["torch-cuda"]


@pytest.mark.usefixtures("way")
def test_all_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")
    said = []

    def content() -> str:
        return (target / "__init__.py").read_text()

    monkeypatch.setattr(package, "sync_tree", lambda tree: said.append((tree.name, content())))
    monkeypatch.setattr(package, "sync", lambda folder: said.append((folder.name, content())))
    package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert said == [(".torch-cuda.new", "old"), ("build", "new")]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "no space")])
@pytest.mark.parametrize("step", ["copy2", "copystat", "amend", "sync_tree", "sync"])
def test_a_failure_leaves_one_good_build_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")

    def fail(*_: object, **__: object) -> None:
        raise error

    if step != "amend":
        monkeypatch.setattr(package.shutil if step.startswith("copy") else package, step, fail)
    amend = (fail,) if step == "amend" else ()
    with pytest.raises(type(error)) as caught:
        package.install_variant(variant(tmp_path / "stage", "new"), target, *amend)
    assert caught.value is error
    assert (target / "__init__.py").read_text() == ("new" if step == "sync" else "old")
    assert names(target.parent) == ["torch-cuda"]


def test_a_failure_between_the_renames_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")
    rename = Path.rename

    def fail_once(path: Path, other: Path) -> Path:
        if path.name == ".torch-cuda.new":
            raise OSError(errno.EIO, "a bad disk")
        return rename(path, other)

    monkeypatch.setattr(package, "exchange_paths", lambda *_: False)
    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="a bad disk"):
        package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert (target / "__init__.py").read_text() == "old"
    assert names(target.parent) == ["torch-cuda"]


def test_the_only_directory_is_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "build" / "torch-cuda"
    old = variant(target.with_name(".torch-cuda.old"), "old")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        package.install_variant(variant(tmp_path / "stage", "new"), target)
    assert (old / "__init__.py").read_text() == "old"


def test_a_crash_between_the_renames_is_recovered_from(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    variant(tmp_path / "build" / ".torch-cuda.old", "old")
    package.restore_old_variant(target)
    assert (target / "__init__.py").read_text() == "old"


def left_behind(project: Path, name: str = "torch-cuda") -> Path:
    """A project with a good build, and what builds that were killed left beside it."""
    Workspace(project, name).prepare()
    target = variant(project / "build" / name, "good")
    variant(target.with_name(f".{name}.old"), "old")
    partial = target.with_name(f".{name}.new")
    (partial / "layers").mkdir(parents=True)
    (partial / "layers").chmod(0o555)
    return target


def test_what_killed_builds_left_goes(tmp_path: Path) -> None:
    target = left_behind(tmp_path)
    left = [target.with_name(f".torch-cuda.{kind}") for kind in ("new", "old")]
    assert names(target.parent) == [".torch-cuda.new", ".torch-cuda.old", "torch-cuda"]
    assert package.remove_leftovers(tmp_path, target.parent) == (*left,)
    assert names(target.parent) == ["torch-cuda"]
    assert package.remove_leftovers(tmp_path, target.parent) == ()


def test_modes_come_from_no_umask(tmp_path: Path) -> None:
    plan = plan_of("torch213-cxx11-cpu-x86_64-linux")
    stage = tmp_path / "stage"
    before = os.umask(0o077)
    try:
        (stage / "layers").mkdir(parents=True)
        for name in ("_ops.py", "layers/__init__.py", "_k.abi3.so"):
            (stage / name).touch()
        package.finalize_stage(plan, stage)
    finally:
        os.umask(before)
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
        for path in (stage, *stage.rglob("*"))
    }
    assert {name for name, mode in modes.items() if mode == 0o755} == {
        "stage", "stage/layers", "stage/_k.abi3.so",
    }  # fmt: skip
    assert set(modes.values()) == {0o755, 0o644}


def test_the_metadata_says_what_compiled_it_and_not_where() -> None:
    versions = (
        ("torch", "2.13.0"),
        ("c++", "12.2.0"),
        ("cutlass_4_0", "4.0 (/home/ann/cutlass, sha256 0a1b2c)"),
    )
    made = plan_of("torch213-cxx11-cpu-x86_64-linux")
    provenance = metadata_of(
        made.with_toolchain(ToolchainSummary("host", versions, "0"))
    ).provenance
    assert provenance is not None
    used = provenance.builder.toolchain
    assert used is not None
    assert (used.source, list(used.versions)) == ("host", ["c++", "cutlass_4_0", "torch"])
    assert used.versions["cutlass_4_0"] == "4.0 (sha256 0a1b2c)"

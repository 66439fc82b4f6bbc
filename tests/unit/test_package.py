import os
from pathlib import Path

import pytest
from plans import plan_of

from kbuild import package
from kbuild.errors import FileConflictError
from kbuild.generate.metadata import metadata_of
from kbuild.plan import ToolchainSummary


def variant(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text('{"id": "_k_cpu_1"}')
    (folder / "__init__.py").write_text(content)
    return folder


def test_the_new_directory_replaces_the_old_one(tmp_path: Path) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")
    (target / "stale.py").write_text("gone after the next build")
    package.place(variant(tmp_path / "stage", "new"), target)
    assert sorted(path.name for path in target.iterdir()) == ["__init__.py", "metadata.json"]
    assert (target / "__init__.py").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["torch-cuda"]


def test_something_else_in_its_place_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    target.mkdir(parents=True)
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(FileConflictError):
        package.place(variant(tmp_path / "stage", "new"), target)
    assert (target / "thesis.txt").read_text() == "years of work"


def test_a_crash_while_copying_leaves_the_good_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = variant(tmp_path / "build" / "torch-cuda", "old")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(package.shutil, "copytree", crash)
    with pytest.raises(KeyboardInterrupt):
        package.place(variant(tmp_path / "stage", "new"), target)
    assert (target / "__init__.py").read_text() == "old"


def test_a_crash_between_the_renames_is_undone(tmp_path: Path) -> None:
    target = tmp_path / "build" / "torch-cuda"
    variant(tmp_path / "build" / ".torch-cuda.old", "old")
    package.recover(target)
    assert (target / "__init__.py").read_text() == "old"


def test_modes_come_from_no_umask(tmp_path: Path) -> None:
    plan = plan_of("torch213-cxx11-cpu-x86_64-linux")
    stage = tmp_path / "stage"
    before = os.umask(0o077)
    try:
        (stage / "layers").mkdir(parents=True)
        for name in ("_ops.py", "layers/__init__.py", "_k.abi3.so"):
            (stage / name).touch()
        package.finish(plan, stage)
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


def test_the_metadata_of_python_sources_names_no_toolchain() -> None:
    made = plan_of("torch-cuda").with_toolchain(ToolchainSummary("host", (), "0"))
    provenance = metadata_of(made).provenance
    assert provenance is not None
    assert provenance.builder.toolchain is None

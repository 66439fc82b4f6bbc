"""What travels to workers, and what they refuse."""

from __future__ import annotations

import io
import tarfile
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from kbuild.plugins.cluster.jobs import (
    CompileJob,
    FileArchive,
    MachineFacts,
    archive_files,
    archive_sources,
    machine_facts,
    parse_job,
    unpack_archive,
)
from kbuild.system.errors import DamagedFileError
from tests.support.plans import plan_of

VARIANT = "torch213-cxx11-cpu-x86_64-linux"


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_only_what_compilers_read_travels(tmp_path: Path) -> None:
    plan = replace(plan_of(VARIANT), components=())
    project = tmp_path / "project"
    write(project, "src/a.cpp", "include/a.inc", "build/old/x.h", ".git/config.h")
    write(project, ".env", ".secret.h", "weights.bin", "torch-ext/relu/__init__.py")
    archive = archive_sources(project, {VARIANT: plan})
    unpack_archive(archive, tmp_path / "there")
    assert files_below(tmp_path / "there") == {"src/a.cpp", "include/a.inc"}
    assert archive == archive_sources(project, {VARIANT: plan})


def test_programs_stay_programs(tmp_path: Path) -> None:
    write(tmp_path / "project", "run.sh", "a.py")
    (tmp_path / "project/run.sh").chmod(0o700)
    names = ("a.py", "run.sh")
    archive = archive_files({name: tmp_path / "project" / name for name in names})
    unpack_archive(archive, tmp_path / "there")
    modes = [(tmp_path / "there" / name).stat().st_mode & 0o777 for name in names]
    assert modes == [0o644, 0o755]


def test_an_archive_is_what_its_digest_says(tmp_path: Path) -> None:
    write(tmp_path / "project", "a.cpp")
    archive = archive_sources(tmp_path / "project", {})
    other = replace(archive, digest="0" * 64)
    with pytest.raises(DamagedFileError):
        unpack_archive(other, tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["../a.cpp", "/somewhere/a.cpp", "a/../../b.cpp"])
def test_an_archive_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as members:
        members.addfile(tarfile.TarInfo(name), io.BytesIO())
    content = stream.getvalue()
    archive = FileArchive(sha256(content).hexdigest(), zlib.compress(content))
    with pytest.raises(DamagedFileError, match="no file of"):
        unpack_archive(archive, tmp_path / "there")
    assert files_below(tmp_path) == set()


def test_a_job_survives_the_way() -> None:
    job = CompileJob(plan_of(VARIANT), "host", "0" * 64)
    read = parse_job(job.to_bytes())
    assert read.plan.digest == job.plan.digest
    assert (read.toolchain, read.project) == ("host", "0" * 64)


def test_the_first_difference_of_a_machine_is_named() -> None:
    facts = MachineFacts("digest", "cpython 3.12.1", "glibc 2.36", "x86_64")
    assert facts.difference(facts) == ""
    assert facts.difference(replace(facts, kbuild="x")) == "it has another kbuild"
    other = replace(facts, python="cpython 3.11.0")
    assert facts.difference(other) == "it has another Python (cpython 3.11.0, not cpython 3.12.1)"
    assert "glibc 2.28" in facts.difference(replace(facts, libc="glibc 2.28"))
    assert machine_facts() == machine_facts()


def test_where_variants_run_only_kbuild_has_to_be_the_same() -> None:
    own = machine_facts()
    other = replace(own, kbuild="x", python="cpython 3.9.1", libc="glibc 2.17", machine="aarch64")
    assert own.difference(other)
    assert own.for_variants.difference(other) == ""
    assert own.for_variants.difference(replace(other, code="x")) == "it has another kbuild"

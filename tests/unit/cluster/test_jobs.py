"""What travels to workers, and what they refuse."""

from __future__ import annotations

import io
import tarfile
import zlib
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from kbuild.cluster.jobs import (
    CompileJob,
    MachineFacts,
    ProjectArchive,
    archive_project,
    machine_facts,
    parse_job,
    unpack_project,
)
from kbuild.errors import DamagedFileError
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
    archive = archive_project(project, {VARIANT: plan})
    unpack_project(archive, tmp_path / "there")
    assert files_below(tmp_path / "there") == {"src/a.cpp", "include/a.inc"}
    assert archive == archive_project(project, {VARIANT: plan})


def test_an_archive_is_what_its_digest_says(tmp_path: Path) -> None:
    write(tmp_path / "project", "a.cpp")
    archive = archive_project(tmp_path / "project", {})
    other = replace(archive, digest="0" * 64)
    with pytest.raises(DamagedFileError):
        unpack_project(other, tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["../a.cpp", "/somewhere/a.cpp", "a/../../b.cpp"])
def test_an_archive_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as members:
        members.addfile(tarfile.TarInfo(name), io.BytesIO())
    content = stream.getvalue()
    archive = ProjectArchive(sha256(content).hexdigest(), zlib.compress(content))
    with pytest.raises(DamagedFileError, match="no file of"):
        unpack_project(archive, tmp_path / "there")
    assert files_below(tmp_path) == set()


def test_a_job_survives_the_way() -> None:
    job = CompileJob(plan_of(VARIANT), "host", "0" * 64)
    read = parse_job(job.to_bytes())
    assert read.plan.digest == job.plan.digest
    assert (read.toolchain, read.project) == ("host", "0" * 64)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"plan": {"format": 99}}'])
def test_what_is_no_job_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedFileError):
        parse_job(data)


def test_the_first_difference_of_a_machine_is_named() -> None:
    facts = MachineFacts("digest", "cpython 3.12.1", "glibc 2.36", "x86_64")
    assert facts.difference(facts) == ""
    assert facts.difference(replace(facts, kbuild="x")) == "it has another kbuild"
    other = replace(facts, python="cpython 3.11.0")
    assert facts.difference(other) == "it has another Python (cpython 3.11.0, not cpython 3.12.1)"
    assert "glibc 2.28" in facts.difference(replace(facts, libc="glibc 2.28"))
    assert machine_facts() == machine_facts()

"""Which variants fit a worker's interpreter and GPUs, and its folder."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path

import pytest

from kbuild.dsl.tune.host import Device
from kbuild.pipeline.testing import ProjectTests
from kbuild.plugins.cluster.jobs import archive_files
from kbuild.plugins.cluster.worker import WorkerState
from kbuild.plugins.cluster.worker_compiler import WorkerRuntime, device_for, misfit, run_tests
from kbuild.project.variant import Variant
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from tests.support.interpreters import make_interpreter

HERE = f"{platform.machine()}-linux"
H100 = Device("cuda:0", "H100", "sm_90", 132)
CUDA = f"torch213-cxx11-cu130-{HERE}"


def runtime(python: Path = Path("python"), *devices: Device) -> WorkerRuntime:
    return WorkerRuntime(str(python), "3.12.1", "2.13.0", "", True, devices)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"torch213-cxx11-cpu-{HERE}", ""),
        (f"torch-stable-abi211-cpu-{HERE}", ""),
        (f"torch-stable-abi214-cpu-{HERE}", "has Torch 2.13.0"),
        (f"torch212-cxx11-cpu-{HERE}", "has Torch 2.13.0"),
        (CUDA, "is not built for CUDA"),
        ("torch213-cpu-aarch64-darwin", "this machine is"),
    ],
)
def test_an_interpreter_fits_or_says_why_not(tmp_path: Path, name: str, reason: str) -> None:
    python = make_interpreter(tmp_path / "venv").python
    why = misfit(Variant.parse(name), runtime(python), tmp_path, LocalRunner())
    assert why.endswith(reason) if reason.startswith("has") else reason in why
    assert bool(why) == bool(reason)


@pytest.mark.parametrize(
    ("archs", "device"),
    [
        (["9.0"], H100),
        (["8.0+PTX"], H100),
        (["8.0", "9.0a"], H100),
        (["8.0"], None),
        (["10.0+PTX"], None),
        (["8.0a"], None),
        (None, H100),
    ],
)
def test_the_gpu_runs_the_images(
    tmp_path: Path, archs: list[str] | None, device: Device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend = {"type": "cuda", **({"archs": archs} if archs else {})}
    facts = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT", "python-depends": []}
    (tmp_path / "metadata.json").write_text(json.dumps({**facts, "backend": backend}))
    variant, here = Variant.parse(CUDA), runtime(Path("python"), H100)
    if device is None:
        with pytest.raises(ToolchainError, match=r"do not run on H100 \(9.0\)"):
            device_for(variant, tmp_path, here).__enter__()
        return
    with device_for(variant, tmp_path, here) as held:
        assert held == device


def test_without_a_gpu_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="finds no GPU for CUDA"):
        device_for(Variant.parse(CUDA), tmp_path, runtime()).__enter__()


def test_without_the_program_that_limits_time_no_test_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = make_interpreter(tmp_path / "venv").python
    monkeypatch.setenv("PATH", str(tmp_path))
    request = {
        "variant": f"torch213-cxx11-cpu-{HERE}",
        "runs_on": runtime(python).to_json(),
        "tests": asdict(ProjectTests("demo", "demo")),
        "folders": {},
        "seconds": 5,
    }
    answer = run_tests(request, tmp_path)
    assert answer == {"refusal": "there is no program `timeout`, which ends tests that hang"}


def test_an_archive_without_files_is_unpacked_once(tmp_path: Path) -> None:
    # A project of kernels in DSLs alone has no sources that a compiler reads.
    archive, fetched = archive_files({}), list[str]()

    def fetch(digest: str) -> bytes:
        fetched.append(digest)
        return archive.data

    worker_state = WorkerState(tmp_path, 1)
    try:
        folder = worker_state.unpacked(archive.digest, fetch)
        assert worker_state.unpacked(archive.digest, fetch) == folder
    finally:
        worker_state.close()
    assert folder.is_dir()
    assert fetched == [archive.digest]

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.toolchains.cuda_toolkits import LocalCudaToolkits
from kbuild.toolchains.facts import FactCache
from tests.support.fake_machine import FakeRunner


def nvcc(root: Path) -> Path:
    program = root / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    return program


@pytest.fixture
def toolkits(tmp_path):
    def answer(command):
        release = Path(command[0]).parents[1].name.partition("-")[2]
        return f"Cuda compilation tools, release {release}, V{release}.85\n"

    def make(**environ: str) -> LocalCudaToolkits:
        asked = FakeRunner({"--version": answer})
        return LocalCudaToolkits(
            FactCache(tmp_path / "cache"), asked, environ, tmp_path / "usual" / "cuda"
        )

    return make


def test_where_the_variable_says(toolkits, tmp_path):
    nvcc(tmp_path / "own-12.6")
    found = toolkits(CUDA_HOME=str(tmp_path / "own-12.6"), PATH="")
    made = found.provide("12.6")
    assert (found.unsupported_reason("12.6"), made.root, made.notes) == (
        None,
        tmp_path / "own-12.6",
        (),
    )
    assert dict(made.versions) == {"cuda": "12.6", "nvcc": "12.6.85 (local)"}
    assert found.compiler("12.6") is None


def test_several_releases_side_by_side(toolkits, tmp_path):
    for release in ("12.6", "12.8"):
        nvcc(tmp_path / "usual" / f"cuda-{release}")
    nvcc(tmp_path / "own-13.0")
    found = toolkits(CUDA_HOME=str(tmp_path / "own-13.0"), PATH="")
    assert found.provide("12.8").root.name == "cuda-12.8"
    assert found.provide("12.6").root.name == "cuda-12.6"

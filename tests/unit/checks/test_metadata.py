"""The checks on `metadata.json`, by kbuild and by the `kernels` client."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Output
from kbuild.checks.metadata import MetadataCheck
from kbuild.checks.metadata_client import MetadataClientCheck
from kbuild.checks.probe_process import run_probe
from kbuild.plan.metadata import Metadata
from kbuild.system.processes import LocalRunner

Make = Callable[..., Output]
ID = "_relu_cpu_0a1b2c3"
CUDA = Metadata(
    "relu", "_relu_cuda_0", 1, "mit", "cuda", archs=("8.0", "9.0a", "10.0f", "12.0+PTX")
)
ROCM = Metadata("relu", "_relu_rocm_0", 1, "mit", "rocm", archs=("gfx90a", "gfx942", "gfx1201"))


def said(output: Output) -> list[str]:
    return [f.what for f in MetadataCheck().run(output)]


@pytest.mark.parametrize(
    ("variant", "metadata"),
    [
        ("torch213-cxx11-cu130-x86_64-linux", CUDA),
        ("torch213-cxx11-rocm72-x86_64-linux", ROCM),
        ("torch-cuda", replace(CUDA, archs=None)),
        ("torch-universal", CUDA),
    ],
)
def test_good_archs(make: Make, variant: str, metadata: Metadata) -> None:
    assert said(make(variant=variant, metadata=metadata)) == []


@pytest.mark.parametrize("arch", ["9", "90", "sm_90", "9.0A", "9.0b", "9.0+ptx", "gfx942", ""])
def test_a_wrong_cuda_arch(make: Make, arch: str) -> None:
    metadata = replace(CUDA, archs=("8.0", arch))
    output = make(variant="torch213-cxx11-cu130-x86_64-linux", metadata=metadata)
    assert said(output) == [f"`backend.archs` has `{arch}`, which is not an arch"]


@pytest.mark.parametrize("arch", ["9.0", "gfx", "GFX942", "gfx942:xnack+"])
def test_a_wrong_rocm_arch(make: Make, arch: str) -> None:
    metadata = replace(ROCM, archs=(arch,))
    output = make(variant="torch213-cxx11-rocm72-x86_64-linux", metadata=metadata)
    assert said(output) == [f"`backend.archs` has `{arch}`, which is not an arch"]


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        (replace(CUDA, id="_relu_cpu_0", archs=None), "`backend.type` is `cuda`, but"),
        (Metadata("relu", "1-x", 1, "mit", "cpu"), "`id`: `1-x` is not a Python identifier"),
        (Metadata("class", "_x", 1, "mit", "cpu"), "`name`: `class` is not a Python identifier"),
        (Metadata("relu", "_x", 1, "mit", "cpu", archs=("8.0",)), "but cpu has no archs"),
    ],
)
def test_wrong_values(make: Make, metadata: Metadata, what: str) -> None:
    (found,) = said(make(metadata=metadata))
    assert what in found


def test_digest_missing(make: Make, seal: Callable[..., None]) -> None:
    output = make()
    seal(output.root, digest=False)
    assert said(output) == ["`digest` is missing"]


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b"{}"])
def test_unreadable(make: Make, data: bytes) -> None:
    output = make()
    (output.root / "metadata.json").write_bytes(data)
    assert said(output)


HAS_CLIENT = importlib.util.find_spec("kernels") is not None
needs_client = pytest.mark.skipif(not HAS_CLIENT, reason="the kernels client is not installed")


def by_client(output: Output) -> list[tuple[str, str]]:
    return [(f.severity, f.what) for f in MetadataClientCheck().run(output)]


def test_no_client_is_said(make: Make, tmp_path: Path) -> None:
    assert by_client(make())[0][0] == "info"
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    bare.chmod(0o755)
    ((severity, what),) = by_client(make(python=bare))
    assert severity == "info"
    assert "No module named 'kernels'" in what


@needs_client
def test_reading_takes_no_import_of_the_whole_client(make: Make) -> None:
    metadata = make().root / "metadata.json"
    answer = run_probe(LocalRunner(), Path(sys.executable), "metadata_probe", metadata)
    assert answer.state == "ok"
    assert any("/kernels/" in path for path in answer.files)
    assert not any("huggingface_hub" in path for path in answer.files)


def test_a_client_without_a_module_of_its_own_for_reading(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text(
        "class Metadata:\n    def read_from_file(path):\n        raise ValueError('old client')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    metadata = make().root / "metadata.json"
    answer = run_probe(LocalRunner(), Path(sys.executable), "metadata_probe", metadata)
    assert answer.state == "refused"
    assert answer.reason.endswith("old client")

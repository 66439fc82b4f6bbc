"""The checks on `metadata.json`, by kbuild and by the `kernels` client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Output
from kbuild.checks.metadata import MetadataCheck
from kbuild.checks.metadata_client import MetadataClientCheck
from kbuild.plan.metadata import Metadata

Make = Callable[..., Output]
CUDA = Metadata(
    "relu", "_relu_cuda_0", 1, "mit", "cuda", archs=("8.0", "9.0a", "10.0f", "12.0+PTX")
)


def said(output: Output) -> list[str]:
    return [f.what for f in MetadataCheck().run(output)]


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

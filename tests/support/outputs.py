"""Outputs for checks: variant folders with a right digest."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Output
from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import Metadata
from kbuild.project.variant import Variant

CPU = platform.machine()
ID = "_relu_cpu_0a1b2c3"
METADATA = Metadata("relu", ID, 1, "apache-2.0", "cpu")


def write_metadata(root: Path, metadata: Metadata = METADATA, *, digest: bool = True) -> None:
    if digest:
        metadata = replace(metadata, digest=digest_variant(root))
    (root / "metadata.json").write_text(metadata.to_json_text())


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Output]:
    """A variant folder with the given files, sealed with a right digest."""

    def made(
        files: dict[str, str | bytes] | None = None,
        *,
        variant: str = f"torch213-cxx11-cpu-{CPU}-linux",
        metadata: Metadata = METADATA,
        **facts: object,
    ) -> Output:
        root = tmp_path / "build" / variant
        for name, content in ({"__init__.py": "", "_ops.py": ""} | (files or {})).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            data = content.encode() if isinstance(content, str) else content
            (root / name).write_bytes(data)
        write_metadata(root, metadata)
        return Output(root, Variant.parse(variant), **facts)

    return made

"""Variants made on the spot."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import Check, Finding, Output
from kbuild.plan.digest import digest_variant
from kbuild.plan.metadata import Metadata
from kbuild.project.variant import Variant
from tests.support.warm_python import warm_python

CPU = platform.machine()
ID = "_relu_cpu_0a1b2c3"
METADATA = Metadata("relu", ID, 1, "apache-2.0", "cpu")
EXTENSION = f"""
typedef void *(*use)(void *, int);
extern void *PyModule_Create2(void *, int);
void *PyInit_{ID}(void) {{ return PyModule_Create2(0, 3); }}
"""


def write_metadata(root: Path, metadata: Metadata = METADATA, *, digest: bool = True) -> None:
    if digest:
        metadata = replace(metadata, digest=digest_variant(root))
    (root / "metadata.json").write_text(metadata.to_json_text())


@pytest.fixture
def seal() -> Callable[..., None]:
    """Writes `metadata.json` with a right digest into a folder."""
    return write_metadata


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


@pytest.fixture
def noarch(make: Callable[..., Output]) -> Callable[..., Output]:
    """A Python-only variant for the CPU."""

    def made(files: dict[str, str | bytes] | None = None, **facts: object) -> Output:
        return make(files, variant="torch-cpu", **facts)

    return made


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """An interpreter that starts with Torch imported: the import takes seconds each time.

    It listens at a path, and such a path has at most 107 characters: pytest's own may be longer.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kbuild-warm-", dir="/tmp") as folder,
        warm_python(Path(folder)) as program,
    ):
        yield program


@pytest.fixture
def compiled(make: Callable[..., Output], library: Callable[..., bytes]) -> Callable[..., Output]:
    """A variant whose extension is compiled from the given source."""

    def made(*source_and_flags: str, output: dict[str, object] | None = None, **how: object):
        data = library(*(source_and_flags or (EXTENSION,)), **how)
        return make({f"{ID}.abi3.so": data}, **(output or {}))

    return made


@pytest.fixture
def run() -> Callable[..., list[Finding]]:
    """What a check finds, after asking whether it applies; notes only when they are asked for."""

    def ran(check: Check, output: Output, *, notes: bool = False) -> list[Finding]:
        found = list(check.run(output)) if check.applies(output) else []
        return [finding for finding in found if notes or finding.severity != "info"]

    return ran


@pytest.fixture
def metadata() -> Metadata:
    """What variants are sealed with."""
    return METADATA

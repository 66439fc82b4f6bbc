"""Variants made on the spot."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbuild.checks.base import Check, Finding, Output
from kbuild.plan.metadata import Metadata
from tests.support.outputs import ID, METADATA, make, write_metadata
from tests.support.warm_python import warm_python

__all__ = ["make"]
EXTENSION = f"""
typedef void *(*use)(void *, int);
extern void *PyModule_Create2(void *, int);
void *PyInit_{ID}(void) {{ return PyModule_Create2(0, 3); }}
"""


@pytest.fixture
def seal() -> Callable[..., None]:
    """Writes `metadata.json` with a right digest into a folder."""
    return write_metadata


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

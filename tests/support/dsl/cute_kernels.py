"""Kernels in CuTe DSL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbuild.ops.image import UnitImage
from tests.support.dsl.compiled import DslKernel, DslProject, dsl_compiler
from tests.support.stores import dsl_store, shared_folder, warm_cache

VERSION = "4.8.1"
OLD = "KBUILD_TEST_OLD_CUTE"
"""Set where an older release may be fetched, too."""
SOURCE = "add.py"


class CuteProject(DslProject):
    """A folder with one source in CuTe DSL."""

    @property
    def only(self) -> DslKernel:
        return self.kernel((SOURCE,))

    def compiled(
        self, text: str, source: str, *targets: str, flavour: str = "cuda13"
    ) -> tuple[UnitImage, ...]:
        return self.compile(text, {SOURCE: source}, *targets, flavour=flavour)


@contextmanager
def shop(
    cache: Path, folder: Path, *, version: str = VERSION, keeps: bool = True
) -> Iterator[CuteProject]:
    with dsl_compiler(cache, keeps=keeps) as compiler:
        yield CuteProject(compiler, folder, "cute", (f"nvidia-cutlass-dsl=={version}",))


def cache_with_dsl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for CuTe DSL, for all processes; skips where its wheels cannot be had."""
    store = dsl_store(f"cute-{VERSION}", "nvidia-cutlass-dsl", tmp_path_factory)
    return warm_cache(shared_folder(tmp_path_factory) / "cute-cache", store, tmp_path_factory)

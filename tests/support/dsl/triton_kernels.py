"""Kernels in Triton."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kbuild.ops.language import KernelFunction
from tests.support.dsl.compiled import DslProject, dsl_compiler

# 3.9 has no wheels for Python 3.10.
VERSION = "3.9.0" if sys.version_info >= (3, 11) else "3.6.0"


class TritonProject(DslProject):
    """A folder with kernels in Triton."""

    def describe(self, sources: Mapping[str, str], *targets: str) -> Mapping[str, KernelFunction]:
        self.write(sources)
        return self.functions(self.kernel(sources), targets)


@contextmanager
def shop(
    cache: Path, folder: Path, *, jobs: int = 2, keeps: bool = True
) -> Iterator[TritonProject]:
    with dsl_compiler(cache, jobs=jobs, keeps=keeps) as compiler:
        yield TritonProject(compiler, folder, "triton", (f"triton=={VERSION}",))

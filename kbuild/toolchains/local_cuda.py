"""CUDA toolkits that are installed on this machine, for releases that no wheels make."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.devices import USUAL_CUDA, DeviceCompiler, nvcc_at
from kbuild.toolchains.facts import FactCache, compiler
from kbuild.toolchains.toolkit import Toolkit, ToolkitSource, Versions
from kbuild.toolchains.wheels.cuda import FIRST_MAJOR
from kbuild.version import Version

_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_PATCH = re.compile(r"\bV(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class LocalToolkits(ToolkitSource):
    """`$CUDA_HOME`, `$CUDA_PATH`, nvcc on PATH, `/usr/local/cuda-12.6`, `/usr/local/cuda`."""

    cache: FactCache
    runner: Runner
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    usual: Path = USUAL_CUDA

    name = "local"

    def refuses(self, release: str) -> str | None:
        """See `ToolkitSource.refuses`."""
        if Version.parse(release).major >= FIRST_MAJOR:
            return f"CUDA {release} is taken from wheels"
        if self._find(release):
            return None
        places = f"${', $'.join(_VARIABLES)}, PATH or {self.usual}-{release}"
        return f"none is at {places}"

    def preview(self, release: str) -> Versions:
        """See `ToolkitSource.preview`."""
        found = self._find(release)
        if found is None:
            raise ToolchainError(f"no CUDA {release} on this machine: {self.refuses(release)}")
        text = compiler(found.program, self.cache, self.runner)["text"]
        patch = _PATCH.search(text)
        return (("cuda", release), ("nvcc", f"{patch[1] if patch else release} (local)"))

    def provide(self, release: str) -> Toolkit:
        """See `ToolkitSource.provide`."""
        versions, found = self.preview(release), self._find(release)
        assert found is not None  # noqa: S101 - `preview` raises without one
        return Toolkit(self.name, found.root, found.program, versions)

    def _find(self, release: str) -> DeviceCompiler | None:
        found = map(self._nvcc, self._programs(release))
        return next((nvcc for nvcc in found if nvcc and nvcc.fits(release)), None)

    def _nvcc(self, program: Path) -> DeviceCompiler | None:
        """One that does not start is none."""
        with suppress(ToolchainError):
            return nvcc_at(program, self.cache, self.runner)
        return None

    def _programs(self, release: str) -> Iterator[Path]:
        for variable in _VARIABLES:
            if self.environ.get(variable):
                yield Path(self.environ[variable], "bin", "nvcc")
        on_path = shutil.which("nvcc", path=self.environ.get("PATH"))
        if on_path:
            yield Path(on_path).resolve()
        for folder in (self.usual.with_name(f"{self.usual.name}-{release}"), self.usual):
            yield folder / "bin" / "nvcc"

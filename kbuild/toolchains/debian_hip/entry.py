"""One store entry: the packages' files in the shape of a ROCm installation, able to run in place.

Its folder holds what `$ROCM_PATH` would: `llvm/bin/clang++`, `include/hip`, `amdgcn/bitcode`,
`lib/libamdhip64.so` and CMake's packages `hip` and `hip-lang`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.debian.deb import unpack
from kbuild.toolchains.debian_hip.pins import Pins, layout, text
from kbuild.toolchains.debian_hip.stub import make_stub

_TOOLS = ("clang", "lld", "clang-offload-bundler")
_LOADER = "llvm/lib/ld-linux-x86-64.so.2"


@dataclass(frozen=True)
class Assembly:
    """How an entry is made, packages aside."""

    pins: Pins
    target: Path
    """Where the files will be: the tools name their loader by its whole path."""
    patchelf: Path
    cxx: Path
    """The host's compiler."""
    runner: Runner

    def fill(self, folder: Path, debs: Sequence[Path]) -> Mapping[str, Any]:
        """Make the entry in `folder`, which will be moved to `target`; see `kbuild.store.Make`.

        Raises:
            ToolchainError: a package or a tool is not as expected.
        """
        for deb in debs:
            unpack(deb, folder, layout().destination)
        self._use_own_libraries(folder)
        self._add_runtime(folder / "lib")
        return {"sources": [asdict(package) for package in self.pins.packages]}

    def _use_own_libraries(self, folder: Path) -> None:
        """The tools run with the entry's C library; only they, so the environment stays as it is.

        RPATH, not RUNPATH: it serves the libraries' own libraries as well.
        """
        tools = [str(folder / "llvm" / "bin" / tool) for tool in _TOOLS]
        loader = ("--set-interpreter", str(self.target / _LOADER))
        search = ("--force-rpath", "--set-rpath", "$ORIGIN/../lib")
        done = self.runner.run((str(self.patchelf), *loader, *search, *tools))
        if not done.ok:
            raise ToolchainError(f"patchelf failed:\n{done.output.strip()}")
        (folder / _LOADER).chmod(0o755)

    def _add_runtime(self, folder: Path) -> None:
        """The runtime's symbols, and the CMake packages that lead to them."""
        folder.mkdir()
        make_stub(folder, self.pins.soname, text("symbols.txt"), self.cxx, self.runner)
        for name in ("hip", "hip-lang"):
            config = folder / "cmake" / name / f"{name}-config.cmake"
            config.parent.mkdir(parents=True)
            config.write_text(text(config.name).replace("@SONAME@", self.pins.soname))

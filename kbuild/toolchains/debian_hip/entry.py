"""One store entry: the packages' files in the shape of a ROCm installation, able to run in place.

Its folder holds what `$ROCM_PATH` would: `llvm/bin/clang++`, `include/hip`, `amdgcn/bitcode`,
`lib/libamdhip64.so` and CMake's packages `hip` and `hip-lang`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.toolchains.debian_hip.deb import unpack
from kbuild.toolchains.debian_hip.pins import Pins, destination, text
from kbuild.toolchains.debian_hip.stub import make_stub

_TOOLS = ("clang", "lld", "clang-offload-bundler")
_LOADER = "llvm/lib/ld-linux-x86-64.so.2"


def assemble(
    folder: Path,
    target: Path,
    pins: Pins,
    debs: Sequence[Path],
    patchelf: Path,
    cxx: Path,
    runner: Runner,
) -> None:
    """Fill `folder`, which will be renamed to `target`.

    Raises:
        ToolchainError: a package or a tool is not as expected.
    """
    for deb in debs:
        unpack(deb, folder, destination)
    _use_own_libraries(folder, target, patchelf, runner)
    library = folder / "lib"
    library.mkdir()
    make_stub(library, pins.soname, text("symbols.txt"), cxx, runner)
    for name in ("hip", "hip-lang"):
        config = library / "cmake" / name / f"{name}-config.cmake"
        config.parent.mkdir(parents=True)
        config.write_text(text(config.name).replace("@SONAME@", pins.soname))
    (folder / "kbuild.json").write_text(json.dumps(asdict(pins), indent=1) + "\n")


def _use_own_libraries(folder: Path, target: Path, patchelf: Path, runner: Runner) -> None:
    """The tools run with the entry's C library; only they, so the environment stays as it is.

    RPATH, not RUNPATH: it serves the libraries' own libraries as well.
    """
    tools = [str(folder / "llvm" / "bin" / tool) for tool in _TOOLS]
    paths = ("--set-interpreter", str(target / _LOADER), "--force-rpath", "--set-rpath")
    done = runner.run((str(patchelf), *paths, "$ORIGIN/../lib", *tools))
    if not done.ok:
        raise ToolchainError(f"patchelf failed:\n{done.output.strip()}")
    (folder / _LOADER).chmod(0o755)

"""What every source of HIP shares: a folder in the shape of a ROCm installation, and its Torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.installation import code_digest
from kbuild.plan import Requirements
from kbuild.store import Recipe, Store, store_of
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import Facts
from kbuild.toolchains.hip_headers import FULL, STABLE, hip_headers
from kbuild.toolchains.host import INSTALL_CXX, Host
from kbuild.toolchains.wheels import stubs

_COMPILERS = ("llvm/bin/clang++", "lib/llvm/bin/clang++", "llvm/bin/amdclang++")
_INCLUDE, _LINK = "KBUILD_TORCH_INCLUDE_DIRS", "KBUILD_TORCH_LIBRARY_DIR"
_LIBRARIES = ("torch", "torch_cpu", "c10", "torch_hip", "c10_hip")
_RELEASE = re.compile(r"(\d+\.\d+)")


@dataclass(frozen=True)
class RocmFolder:
    """What `ROCM_PATH` points to."""

    path: Path

    @property
    def compiler(self) -> Path | None:
        """clang, never the wrapper `hipcc`, which CMake refuses; None when there is none."""
        places = (self.path / name for name in _COMPILERS)
        return next((place for place in places if place.is_file()), None)

    @property
    def hip_package(self) -> Path | None:
        """The folder of CMake's package `hip`; None when there is none."""
        places = (self.path / lib / "cmake" / "hip" for lib in ("lib", "lib64"))
        return next((place for place in places if place.is_dir()), None)

    @property
    def version(self) -> str | None:
        """The ROCm release, e.g. `7.2.0`, from the file that every installation has."""
        for name in ("version", "version-rocm"):
            file = self.path / ".info" / name
            if file.is_file():
                return file.read_text().strip().split("-")[0]
        return None


def without_device(requires: Requirements) -> Requirements:
    """What is left for the host's toolchain: C++ and Torch."""
    return replace(requires, backend="cpu", toolkit=None)


def refuses_torch(requires: Requirements, facts: Facts) -> str | None:
    """The full ABI needs the headers and libraries of a Torch built for the same ROCm.

    For the stable ABI any build will do, see `kbuild.toolchains.hip_headers`.
    """
    torch = facts["torch"]
    if requires.torch is None or not requires.torch_exact:
        return None
    found = _RELEASE.match(torch["hip"] or "")
    if found is not None and found[1] == requires.toolkit:
        return None
    has = f"{torch['version']}" + (f" for ROCm {torch['hip']}" if torch["hip"] else "")
    return (
        f"needs Torch {requires.torch} built for ROCm {requires.toolkit}, such as a wheel given by "
        f"--torch-wheel; "
        f"{facts['python']['executable']} has {has}"
    )


def with_hip(
    base: Toolchain,
    source: str,
    rocm: RocmFolder,
    versions: tuple[tuple[str, str], ...],
    host: Host,
    *,
    full: bool = False,
) -> Toolchain:
    """The host's toolchain with HIP added; `full` when Torch's full ABI is built against.

    Raises:
        ToolchainError: the folder has no compiler, or the host's C++ library is not GCC's.
    """
    if rocm.compiler is None:
        raise ToolchainError(f"{rocm.path} has no compiler: looked for {', '.join(_COMPILERS)}")
    entries = cmake_entries(rocm, rocm.compiler, gcc_folder(base, host))
    return replace(
        base,
        source=source,
        cache=(*torch_for_hip(base, host, full=full), *entries),
        versions=(*base.versions, *versions),
        env={**base.env, "ROCM_PATH": str(rocm.path), "HIP_PLATFORM": "amd"},
    )


def torch_for_hip(base: Toolchain, host: Host, *, full: bool) -> tuple[tuple[str, str], ...]:
    """The entries of `base`, and Torch's hipify.

    The headers of a Torch that was not built for ROCm get translated ones before them, and for its
    full ABI link stubs stand for the libraries that it does not have.
    """
    torch, entries = host.facts["torch"], dict(base.cache)
    if torch is None:
        return base.cache
    root = Path(torch["root"])
    entries["KBUILD_HIPIFY_DIR"] = str(root / "utils" / "hipify")
    if _INCLUDE in entries and not torch["hip"]:
        which, store = FULL if full else STABLE, store_of(host.cache.folder)
        version = torch["version"]
        translated = hip_headers(root, version, base.python, store, host.runner, which=which)
        entries[_INCLUDE] = f"{translated};{entries[_INCLUDE]}"
        if full:
            entries[_LINK] = str(_link_stubs(Path(entries["CMAKE_CXX_COMPILER"]), store, host))
    return tuple(entries.items())


def _link_stubs(cxx: Path, store: Store, host: Host) -> Path:
    """A folder with a library of each name and no symbols: Torch's stay undefined in extensions."""

    def make(root: Path) -> Mapping[str, Any]:
        sonames = {f"lib{name}.so": () for name in _LIBRARIES}
        stubs.StubMaker(cxx, host.runner).make_libraries(root, sonames)
        return {}

    code = code_digest(__file__, stubs.__file__)
    recipe = Recipe("torch-hip-link", "1", {"libraries": _LIBRARIES, "kbuild": code})
    return store.ensure(recipe, make).root


def cmake_entries(rocm: RocmFolder, compiler: Path, gcc: Path) -> tuple[tuple[str, str], ...]:
    """What makes CMake's HIP language and `find_package(hip)` use this folder and no other.

    clang takes the C++ library of the host's compiler: both make parts of one extension. The
    folder's own name must not get into objects.
    """
    flags = (  # CMake takes off quotes around the whole value: no path with spaces comes first
        f"--gcc-install-dir={gcc}",
        f"--rocm-path={rocm.path}",
        f"-ffile-prefix-map={rocm.path}=/rocm",
    )
    return (
        ("CMAKE_HIP_PLATFORM", "amd"),
        ("CMAKE_HIP_COMPILER", str(compiler)),
        ("CMAKE_HIP_COMPILER_ROCM_ROOT", str(rocm.path)),
        ("CMAKE_HIP_FLAGS", shlex.join(flags)),
        ("ROCM_PATH", str(rocm.path)),
        ("hip_ROOT", str(rocm.path)),
    )


def gcc_folder(base: Toolchain, host: Host) -> Path:
    """Where the host's compiler keeps its start files, with libstdc++'s headers known from there.

    Raises:
        ToolchainError: the compiler names no such folder.
    """
    cxx = dict(base.cache)["CMAKE_CXX_COMPILER"]

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = host.runner.run((cxx, "-print-file-name=crtbegin.o"))
        return {"start": done.output.strip()}, (str(Path(cxx).resolve()),)

    start = Path(host.cache.get(f"start files {cxx}", ask)["start"])
    if not start.is_absolute():
        raise ToolchainError(f"`{cxx}` names no GCC, whose C++ library HIP needs", hint=INSTALL_CXX)
    return start.resolve().parent

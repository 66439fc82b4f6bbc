"""A CUDA toolkit from the wheels that NVIDIA publishes: one prefix, as CUDA_HOME and CMake want it.

Since CUDA 13 the wheels hold the whole compiler and share one prefix, `nvidia/cu13/`. Those of
CUDA 12 have no nvcc. Of the mathematical libraries only the headers are taken (Torch's own headers
include them); link stubs stand for the libraries, which come with Torch where the kernel is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.system.files import link_tree
from kbuild.system.progress import current_downloads, set_downloads
from kbuild.system.store import Recipe, StoreEntry
from kbuild.system.version import Version
from kbuild.toolchains.cuda_toolkits import FIRST_CUDA_MAJOR
from kbuild.toolchains.link_stubs import (
    LinkStubMaker,
    assign_symbols,
    create_linker_name,
    declared_functions,
)
from kbuild.toolchains.wheels.lock import LockedToolkit, LockedWheel
from kbuild.toolchains.wheels.package_index import FetchedWheel, WheelFetcher

PROGRAMS = (
    "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime",
    "nvidia-cuda-cccl", "nvidia-cuda-culibos",
    "nvidia-cuda-profiler-api", "nvidia-nvtx",
)  # fmt: skip
"""Projects that are unpacked as they are."""
LIBRARIES = (
    "nvidia-cublas", "nvidia-cufft", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse",
    "nvidia-cuda-nvrtc",
)  # fmt: skip
"""Projects of which the headers are taken."""
CROSS_PROGRAMS = ("nvidia-cuda-runtime", "nvidia-cuda-culibos", "nvidia-nvtx")
"""Projects of another processor that its programs are linked with; the headers are the same."""

HEADER_RELEASES = ("12.4",)
"""Earlier releases of which all but the compiler is pinned, see `StoredCudaToolkits`."""
HEADER_PROGRAMS = (
    "nvidia-cuda-runtime-cu12", "nvidia-cuda-cccl-cu12", "nvidia-cuda-profiler-api-cu12",
    "nvidia-nvtx-cu12",
)  # fmt: skip
HEADER_LIBRARIES = (
    "nvidia-cuda-nvcc-cu12", "nvidia-cublas-cu12", "nvidia-cufft-cu12", "nvidia-curand-cu12",
    "nvidia-cusolver-cu12", "nvidia-cusparse-cu12", "nvidia-cuda-nvrtc-cu12",
)  # fmt: skip

_LAYOUT = 1
"""Counts changes of what `make` does with the same wheels."""
# CUDA 12 has a prefix for each project.
_MEMBER = re.compile(r"nvidia/\w+/(?P<path>.+)")
_LIBRARY = re.compile(r"lib/(?P<soname>lib[^/]+\.so\.\d+)")
_PACKAGE = re.compile(r"(?:.*/)?__init__\.py")
_PROGRAM = re.compile(r"(?:nvvm/)?bin/.*")
_LINKS = (
    ("lib64", "lib"),
    ("targets/x86_64-linux/include", "../../include"),
    ("targets/x86_64-linux/lib", "../../lib"),
)
# nvlink looks here for the compiler of its link-time optimisation.
_NVVM = "nvvm/lib64/libnvvm.so"
_DRIVER = ("lib/stubs/libcuda.so", "libcuda.so.1")
_DRIVER_NAME = re.compile(r"cu[A-Z]\w*")
_THREADS = 4


def unsupported_release_reason(release: str) -> str | None:
    """The reason that no wheels make that CUDA release, whatever is pinned."""
    if Version.parse(release).major >= FIRST_CUDA_MAJOR:
        return None
    return f"the wheels of CUDA {release} have no nvcc; install that toolkit and set CUDA_HOME"


def cuda_recipe(locked: LockedToolkit) -> Recipe:
    """The wheels, and how they are put together."""
    inputs = {
        "layout": _LAYOUT,
        "programs": [wheel.sha256 for wheel in locked.programs],
        "libraries": [wheel.sha256 for wheel in locked.libraries],
    }
    return Recipe("cuda", locked.version, inputs)


@dataclass(frozen=True)
class CudaMaker:
    """Makes the prefix of one CUDA release."""

    locked: LockedToolkit
    fetcher: WheelFetcher
    stubs: LinkStubMaker

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the prefix; see `kbuild.system.store.MakeEntry`."""
        downloads = (current_downloads(),)
        with ThreadPoolExecutor(_THREADS, "fetch", set_downloads, downloads) as pool:
            programs = pool.map(
                lambda wheel: self.fetcher.unpack((wheel,), root, _path_in_prefix),
                self.locked.programs,
            )
            libraries = pool.map(lambda wheel: self._library(wheel, root), self.locked.libraries)
            sources = [*programs]
            sonames = []
            for source, names in libraries:
                sources.append(source)
                sonames += names
        # What wheels cannot hold: links, exec bits, and libraries that are not in them.
        for path in _programs(root):
            path.chmod(0o755)
        for name, target in (*_LINKS, *_nvvm_link(root)):
            link = root / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        for library in sorted((root / "lib").glob("*.so.*")):
            create_linker_name(library)
        self._stub_libraries(root, sonames)
        return {"sources": [source.to_json() for source in sources]}

    def _library(self, wheel: LockedWheel, root: Path) -> tuple[FetchedWheel, list[str]]:
        seen: list[str] = []

        def place(name: str) -> str | None:
            path = _path_in_prefix(name)
            library = _LIBRARY.fullmatch(path or "")
            if library:
                seen.append(library["soname"])
            return path if path and path.startswith("include/") else None

        return self.fetcher.unpack((wheel,), root, place), seen

    def _stub_libraries(self, root: Path, sonames: list[str]) -> None:
        names = declared_functions(sorted((root / "include").glob("*.h")))
        self.stubs.make_libraries(root / "lib", assign_symbols(names, sonames))
        file, soname = _DRIVER
        self.stubs.make(root / file, soname, filter(_DRIVER_NAME.fullmatch, names))


CROSS_TARGET = "sbsa-linux"
"""NVIDIA's name for aarch64 servers: the folder of their libraries, below `targets`."""


def cross_cuda_recipe(native: StoreEntry, locked: LockedToolkit) -> Recipe:
    """The toolkit of this machine, and the wheels that are added to it."""
    wheels = [wheel.sha256 for wheel in locked.programs]
    inputs = {"layout": _LAYOUT, "native": native.name, "wheels": wheels}
    return Recipe("cuda-sbsa", native.version, inputs)


@dataclass(frozen=True)
class CrossCudaMaker:
    """Makes a prefix that is this machine's toolkit, with the libraries of `CROSS_TARGET`.

    nvcc finds them from its own path, so it has to be in the same prefix. The headers are the same
    for every processor.
    """

    native: StoreEntry
    locked: LockedToolkit
    fetcher: WheelFetcher
    stubs: LinkStubMaker

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the prefix; see `kbuild.system.store.MakeEntry`."""
        link_tree(self.native.root, root)
        # From 13.1 on, nvcc of the wheels looks for libraries of this machine's processor alone.
        profile = root / "bin" / "nvcc.profile"
        text = profile.read_text("utf-8")
        profile.unlink()  # it is a link to the other prefix's, which must stay as it is
        profile.write_text(text.replace("-L$(TOP)/lib", f"-L$(TOP)/targets/{CROSS_TARGET}/lib"))
        target = root / "targets" / CROSS_TARGET
        folder = target / "lib"
        folder.mkdir(parents=True)
        (target / "include").symlink_to("../../include")
        sources = [self.fetcher.unpack((w,), target, _library_path) for w in self.locked.programs]
        for library in sorted(folder.glob("*.so.*")):
            create_linker_name(library)
        names = declared_functions(sorted((root / "include").glob("*.h")))
        sonames = [path.name for path in (root / "lib").glob("*.so.*")]
        stubs = assign_symbols(names, (name for name in sonames if not (folder / name).exists()))
        self.stubs.make_libraries(folder, stubs)
        file, soname = _DRIVER
        self.stubs.make(target / file, soname, filter(_DRIVER_NAME.fullmatch, names))
        return {
            "sources": [source.to_json() for source in sources],
            "parts": [self.native.name],
        }


def _library_path(name: str) -> str | None:
    path = _path_in_prefix(name)
    return path if path and path.startswith("lib/") else None


def _path_in_prefix(name: str) -> str | None:
    match = _MEMBER.fullmatch(name)
    return match["path"] if match and not _PACKAGE.fullmatch(match["path"]) else None


def _nvvm_link(root: Path) -> Iterator[tuple[str, str]]:
    for library in sorted((root / "lib").glob("libnvvm.so.*"))[:1]:
        yield _NVVM, f"../../lib/{library.name}"


def _programs(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and _PROGRAM.fullmatch(path.relative_to(root).as_posix()):
            yield path

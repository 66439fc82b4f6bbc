"""Pinned releases into the store, each once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.progress import Downloads
from kbuild.system.store import MakeEntry, Recipe, Store, StoreEntry
from kbuild.toolchains.build_tools import find_cxx
from kbuild.toolchains.link_stubs import LinkStubMaker
from kbuild.toolchains.wheels.cuda import (
    CrossCudaMaker,
    CudaMaker,
    cross_cuda_recipe,
    cuda_recipe,
    unsupported_release_reason,
)
from kbuild.toolchains.wheels.frameworks import TORCH, TVM_FFI, WheelTree, WheelTreeMaker
from kbuild.toolchains.wheels.lock import LockedRelease, ToolchainLock, packaged_lock
from kbuild.toolchains.wheels.package_index import (
    INDEX_HINT,
    PackageIndex,
    WheelFetcher,
    naming_missing,
)
from kbuild.toolchains.wheels.settings import IndexSettings, pip_settings

_RELEASE = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class WheelInstaller:
    """Gives store entries, and fills them from the index when they are not there."""

    runner: Runner
    store: Store
    lock: ToolchainLock = field(default_factory=packaged_lock)
    settings: IndexSettings | None = None
    """pip's settings when None."""
    downloads: Downloads = field(default_factory=Downloads)
    system: str | None = None
    """Another system than this machine's, if the installer is one of `crossing`."""

    def crossing(self, system: str) -> WheelInstaller:
        """The installer of Torch and TVM-FFI for another system that the lock has pins for."""
        return replace(self, system=system, lock=self.lock.cross[System.parse(system).cpu])

    @contextmanager
    def fetcher(self) -> Iterator[WheelFetcher]:
        """Asks pip for its settings; the connections are closed at the end."""
        with PackageIndex(self.settings or pip_settings(self.runner, os.environ)) as index:
            yield WheelFetcher(index)

    def install(self, name: str) -> StoreEntry:
        """Install the release of a name such as `cuda-13.0`, `torch-2.14` or `tvm-ffi-0.1`.

        Raises:
            ToolchainError: it stands for nothing, is not pinned, or cannot be fetched.
        """
        kind, _, release = name.rpartition("-")
        makers: dict[str, Callable[[str], StoreEntry]] = {
            "cuda": self.cuda,
            "torch": partial(self.torch, for_device=False),
            "tvm-ffi": self.tvm_ffi,
        }
        if kind not in makers or not _RELEASE.fullmatch(release):
            raise ToolchainError(
                f"`{name}` cannot be installed from wheels",
                hint=f"pinned are {', '.join(self.lock.pinned)}",
            )
        return makers[kind](release)

    def cuda(self, release: str) -> StoreEntry:
        """The prefix of CUDA `13.0`.

        Raises:
            ToolchainError: the release is not pinned, or cannot be fetched.
        """
        locked = self.lock.cuda.get(release)
        if locked is None:
            reason = unsupported_release_reason(release)
            raise ToolchainError(reason) if reason else _unpinned("CUDA", release, self.lock.cuda)
        install = f"install CUDA {release} and set CUDA_HOME to it"
        with naming_missing(f"CUDA {release}", (*locked.programs, *locked.libraries), install):
            return self.ensure_fetched(
                cuda_recipe(locked), lambda fetcher: CudaMaker(locked, fetcher, self.stubs).make
            )

    def cross_cuda(self, release: str, system: str) -> StoreEntry:
        """The prefix of CUDA `13.0`, with the libraries of another system's programs in it.

        Raises:
            ToolchainError: the release is not pinned, or cannot be fetched.
        """
        native, crossing = self.cuda(release), self.crossing(system)
        locked = crossing.lock.cuda.get(release)
        if locked is None:
            raise _unpinned(f"CUDA for {system}", release, crossing.lock.cuda)
        with naming_missing(f"CUDA {release} for {system}", locked.programs):
            return crossing.ensure_fetched(
                cross_cuda_recipe(native, locked),
                lambda fetcher: CrossCudaMaker(native, locked, fetcher, crossing.stubs).make,
            )

    def torch(self, release: str, *, exact: bool = True, for_device: bool = True) -> StoreEntry:
        """The headers and link stubs of Torch `2.14`; without `exact` of that or a later one.

        Without `for_device`, what a wheel for the CPU has will do where there is no other.

        Raises:
            ToolchainError: the release is not pinned, or cannot be fetched.
        """
        locked = self.lock.torch_for(release, exact=exact)
        if locked is None:
            raise _unpinned("Torch", release, self.lock.torch)
        whole, for_cpu = locked.split()
        usable = (whole,) if for_device else (whole, for_cpu)
        there = next((entry for kind in usable if (entry := self._find(TORCH, kind))), None)
        if there is not None:
            return there.touch()
        what = f"Torch {locked.version}"
        # The message names one wheel: the others are alike.
        with naming_missing(what, locked.wheels[:1]), self.fetcher() as fetcher:
            has_whole = fetcher.index.has_any(whole.wheels)
            if not has_whole and fetcher.index.has_any(for_cpu.wheels):
                if for_device:
                    raise _no_device_headers(whole, for_cpu)
                return self._install_tree(TORCH, for_cpu, fetcher)
            return self._install_tree(TORCH, whole, fetcher)

    def tvm_ffi(self, release: str) -> StoreEntry:
        """The headers and the link stub of TVM-FFI `0.1`.

        Raises:
            ToolchainError: the release is not pinned, or cannot be fetched.
        """
        locked = self.lock.tvm_ffi.get(release)
        if locked is None:
            raise _unpinned("TVM-FFI", release, self.lock.tvm_ffi)
        there = self._find(TVM_FFI, locked)
        if there is not None:
            return there.touch()
        what = f"TVM-FFI {locked.version}"
        with naming_missing(what, locked.wheels[:1]), self.fetcher() as fetcher:
            return self._install_tree(TVM_FFI, locked, fetcher)

    def ensure_fetched(
        self, recipe: Recipe, maker: Callable[[WheelFetcher], MakeEntry]
    ) -> StoreEntry:
        """The entry; the index is opened only when it is not there."""
        there = self.store.find(recipe)
        if there is not None:
            return there.touch()
        with self.fetcher() as fetcher:
            return self.ensure(recipe, maker(fetcher))

    def _find(self, tree: WheelTree, locked: LockedRelease) -> StoreEntry | None:
        return next(filter(None, map(self.store.find, tree.recipes(locked))), None)

    def _install_tree(
        self, tree: WheelTree, locked: LockedRelease, fetcher: WheelFetcher
    ) -> StoreEntry:
        maker = WheelTreeMaker(tree, locked, fetcher, self.stubs)
        return self.ensure(maker.recipe, maker.make)

    @property
    def stubs(self) -> LinkStubMaker:
        """Makes link stubs with the system's compiler."""
        return LinkStubMaker(find_cxx(self.system), self.runner)

    def ensure(self, recipe: Recipe, make: MakeEntry) -> StoreEntry:
        """The entry, made when it is not there; the user sees what it costs."""

        def fetch(root: Path) -> Mapping[str, Any]:
            with self.downloads.fetching(f"{recipe.kind} {recipe.version}"):
                return make(root)

        return self.store.ensure(recipe, fetch)


def _no_device_headers(whole: LockedRelease, for_cpu: LockedRelease) -> ToolchainError:
    names = ", ".join(wheel.filename for wheel in for_cpu.wheels)
    wanted = whole.wheels[0].filename if whole.wheels else "a wheel for CUDA"
    return ToolchainError(
        f"of Torch {whole.version} the package index has only {names}, which lacks headers for "
        "devices",
        hint=f"add an index or a find-links folder that has {wanted}; {INDEX_HINT}",
    )


def _unpinned(what: str, release: str, known: Mapping[str, object]) -> ToolchainError:
    has = ", ".join(known) or "none"
    return ToolchainError(
        f"{what} {release} is not in the lock of toolchains, which has {has}",
        hint="use a kbuild that pins it, or `--toolchain host` with what is installed",
    )

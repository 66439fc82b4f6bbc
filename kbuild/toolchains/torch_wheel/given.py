"""One Torch wheel that the user gives: the variants that it fits, and its store entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.fileset import sha256_of_file
from kbuild.matrix.selection import host_system
from kbuild.plan import Requirements
from kbuild.run import Runner
from kbuild.store import Entry, Recipe, Store
from kbuild.toolchains.facts import FactCache, Facts
from kbuild.toolchains.host import find_cxx
from kbuild.toolchains.torch_wheel.reading import read_wheel
from kbuild.toolchains.wheels.archive import Wheel
from kbuild.toolchains.wheels.fetch import Fetched
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.stubs import StubMaker
from kbuild.toolchains.wheels.torch import LIBRARIES, LINK_FOLDER, include_folders, place
from kbuild.version import Version

RECORD = "torch-wheel"
"""What the record of a toolchain calls the wheel."""
_LAYOUT = 1
"""Counts changes of what is made of the same wheel."""
_STUBS = (*LIBRARIES, "torch_xpu", "c10_xpu")
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_XPU = re.compile(r"(\d{4})0?(\d)")  # 20250302: oneAPI 2025.3.2, as the `kernels` client reads it
_UNFINISHED = re.compile(r"\d(?:\.dev|a|b|rc)\d")


@dataclass(frozen=True)
class TorchWheel:
    """A Torch wheel for this machine; a `TorchSupply`."""

    path: Path
    told: Facts
    """See `reading.read_wheel`."""
    store: Store
    runner: Runner

    @property
    def name(self) -> str:
        """The file's name."""
        return str(self.told["name"])

    @property
    def release(self) -> Version:
        """`2.13` of `2.13.0+rocm7.1`."""
        return _release(self.told["version"])

    @cached_property
    def backend(self) -> str:
        """What it was built for, as variants call it."""
        fields = {"cuda": "cuda", "hip": "rocm", "xpu": "xpu"}
        return next((name for field, name in fields.items() if self.told[field]), "cpu")

    @cached_property
    def backend_release(self) -> Version | None:
        """CUDA 12.6, ROCm 7.1, oneAPI 2025.3; None for the CPU."""
        told = self.told
        if told["xpu"]:
            match = _XPU.match(told["xpu"])
            return Version((int(match[1]), int(match[2]))) if match else _release(told["xpu"])
        text = told["cuda"] or told["hip"]
        return _release(text) if text else None

    def __str__(self) -> str:
        """E.g. `Torch 2.13 for rocm 7.1`."""
        release = f" {self.backend_release}" if self.backend_release else ""
        return f"Torch {self.release} for {self.backend}{release}"

    def fits(self, requires: Requirements) -> bool:
        """True for variants of its backend's release that are built against its Torch."""
        if requires.torch is None or requires.system != self.told["system"]:
            return False
        wanted = Version.parse(requires.torch)
        fits = self.release == wanted if requires.torch_exact else self.release >= wanted
        toolkit = Version.parse(requires.toolkit) if requires.toolkit else None
        return fits and self.is_for(requires.backend, toolkit)

    def is_for(self, backend: str, release: Version | None) -> bool:
        """True for its backend, in its release; builds for macOS serve Metal as well."""
        if self.told["system"].endswith("darwin") and backend in {"cpu", "metal"}:
            return True
        if backend != self.backend:
            return False
        return self.backend_release == (
            Version((release.major, release.minor)) if release else None
        )

    @property
    def recipe(self) -> Recipe:
        """What its store entry is made from."""
        inputs = {"layout": _LAYOUT, "given": self.told["sha256"]}
        return Recipe("torch", self.told["version"], inputs)

    @property
    def facts(self) -> Facts:
        """As `probe.torch_facts` gives them; the folders are there after `provide`."""
        root = Entry(self.store.root / self.recipe.name).root
        flavour = {key: self.told[key] for key in ("version", "cuda", "hip", "xpu", "cxx11_abi")}
        return flavour | {
            "root": str(root / "torch"),
            "include_dirs": [str(folder) for folder in include_folders(root)],
            "library_dir": str(root / LINK_FOLDER),
        }

    @property
    def record(self) -> tuple[tuple[str, str], ...]:
        """For the record of a toolchain: which file it was."""
        return ((RECORD, f"{self.name} sha256:{self.told['sha256']}"),)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should hear of."""
        if not _UNFINISHED.search(self.told["version"]):
            return ()
        version = self.told["version"]
        built = f"Torch {self.release} may not load what is built against it"
        return (f"{self.name} is no release of Torch but {version}: {built}",)

    def provide(self) -> Entry:
        """Its files in the store, unpacked the first time.

        Raises:
            ToolchainError: the wheel is damaged, or a stub cannot be made.
        """
        return self.store.ensure(self.recipe, self._make)

    def _make(self, root: Path) -> Mapping[str, Any]:
        sha256, size = self.told["sha256"], self.told["size"]
        wheel = Wheel(LockedWheel(self.name, sha256, size), self.path)
        try:
            wheel.unpack(root, place)
        finally:
            wheel.close()
        stubs = {f"lib{name}.so": () for name in _STUBS}
        StubMaker(find_cxx(), self.runner).make_libraries(root / LINK_FOLDER, stubs)
        return {"sources": [Fetched(self.name, sha256, size, 0, "local").to_json()]}


def open_wheel(path: Path, cache: Path, runner: Runner) -> TorchWheel:
    """Look into a wheel; its digest is remembered while it stays as it is.

    Args:
        path: the file.
        cache: kbuild's cache folder.
        runner: starts the compiler that makes link stubs.

    Raises:
        ToolchainError: there is no such file, or it is no Torch wheel for this machine.
    """
    if not path.is_file():
        raise ToolchainError(f"--torch-wheel: `{path}` is no file")

    def ask() -> tuple[Facts, tuple[str, ...]]:
        return read_wheel(path, sha256_of_file(path), path.stat().st_size), (str(path),)

    told = FactCache(cache).get(f"torch wheel/1 {path}", ask)
    if told["system"] != str(host_system()):
        raise ToolchainError(
            f"{path.name} is for {told['system']}; this machine is {host_system()}",
            hint="give the wheel for this machine",
        )
    return TorchWheel(path, told, Store(cache / "store"), runner)


def _release(text: str) -> Version:
    match = _RELEASE.match(text)
    if match is None:
        raise ToolchainError(f"`{text}` is not a release that kbuild understands")
    return Version((int(match[1]), int(match[2])))

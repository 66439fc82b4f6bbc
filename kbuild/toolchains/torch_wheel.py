"""Torch wheels given with `--torch-wheel`: which variants they fit, and their files.

A given wheel goes before the Torch of an interpreter and before pinned wheels, for the variants of
its own release and backend. It is never installed or imported: what compilers and the linker read
is unpacked into kbuild's store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.plan.plan import Requirements, VariantPlan
from kbuild.project.matrix import matrix_entries
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.files import sha256_of_file
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe, Store, StoreEntry
from kbuild.system.temporary import temporary_folder
from kbuild.system.version import Version
from kbuild.toolchains import probe
from kbuild.toolchains.build_tools import find_cxx
from kbuild.toolchains.facts import FactCache, Facts
from kbuild.toolchains.link_stubs import LinkStubMaker
from kbuild.toolchains.wheels.frameworks import (
    TORCH_LIBRARIES,
    TORCH_LINK_FOLDER,
    torch_destination,
    torch_include_folders,
)
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.package_index import FetchedWheel
from kbuild.toolchains.wheels.wheel_file import Wheel

VERSION_FILE = "torch/version.py"
_CMAKE_FILE = "torch/share/cmake/Torch/TorchConfig.cmake"
_HEADERS_FOLDER = "torch/include/"
_TAG = re.compile(r"^Tag: *([^-\s]+)-([^-\s]+)-(\S+)", re.MULTILINE)
_PLATFORMS = (
    (re.compile(r"(?:many|musl)?linux\w*_(x86_64|aarch64)"), "linux"),
    (re.compile(r"macosx_\w+_(x86_64|arm64)"), "darwin"),
    (re.compile(r"win_(amd64|arm64)"), "windows"),
)
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_CPYTHON = re.compile(r"cp3(\d+)")
_OLDEST_MINOR = 9


def read_torch_wheel(path: Path, sha256: str, size: int) -> dict[str, Any]:
    """The facts of a Torch wheel, as JSON.

    Returns:
        `name`, `sha256`, `size`, `system`, and as in `probe.torch_facts`: `version`, `built_for`,
        `cxx11_abi`.

    Raises:
        ToolchainError: it is damaged, no Torch, or not for CPython 3.9 or newer.
    """
    wheel = Wheel(LockedWheel(path.name, sha256, size), path)
    try:
        names = wheel.names
        if VERSION_FILE not in names or not any(name.startswith(_HEADERS_FOLDER) for name in names):
            raise ToolchainError(
                f"{wheel.locked.filename} is not a wheel of Torch: "
                f"it has no {VERSION_FILE}, or no headers"
            )
        tags = wheel.read(wheel.metadata_name("WHEEL")).decode("utf-8", "replace")
        with temporary_folder("wheel") as scratch:
            # The probe reads files: it runs in other interpreters, which know nothing of wheels.
            for member in (VERSION_FILE, _CMAKE_FILE):
                if member in wheel.names:
                    copy = scratch / member
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(wheel.read(member))
            values = probe.assignments(str(scratch / VERSION_FILE))
            cxx11 = probe.cxx11_abi(str(scratch / "torch"))
        version = str(values.get("__version__") or "")
        if not re.match(r"\d+\.\d+", version):
            raise ToolchainError(f"{path.name}: {VERSION_FILE} names no version of Torch")
        fields = probe.built_for(values)
        # `+rocm7.1` without a HIP release, or the other way round.
        local = version.partition("+")[2]
        known = [backend for backend in BACKENDS.load(plugins=True) if backend.torch_local]
        expected = next((b.torch_field for b in known if local.startswith(b.torch_local)), None)
        actual = next((b.torch_field for b in known if b.torch_field in fields), "")
        if expected is not None and expected != actual:
            raise ToolchainError(
                f"{path.name}: {VERSION_FILE} contradicts itself: the version is {version}, "
                f"and {actual or expected} is {fields.get(actual)}"
            )
        flavour = {"version": version, "built_for": fields, "cxx11_abi": cxx11}
    finally:
        wheel.close()
    system = _system_of_tags(tags, path.name)
    return {"name": path.name, "sha256": sha256, "size": size, "system": system, **flavour}


def _system_of_tags(tags: str, name: str) -> str:
    """`x86_64-linux`, from the wheel's own tags; its file name is not asked."""
    matches = _TAG.findall(tags)
    if not matches:
        raise ToolchainError(f"{name} has no tag that says what it is for")
    python, _, platform = matches[0]
    cpython = _CPYTHON.fullmatch(python)
    if cpython is None or int(cpython[1]) < _OLDEST_MINOR:
        raise ToolchainError(
            f"{name} is for Python `{python}`; kernels are built for CPython 3.{_OLDEST_MINOR} on",
            hint="give a wheel for CPython; any release serves, the headers are the same",
        )
    for pattern, system in _PLATFORMS:
        match = pattern.match(platform)
        if match is not None:
            return f"{_CPUS.get(match[1], match[1])}-{system}"
    raise ToolchainError(f"{name} is for `{platform}`, which kbuild does not know")


TORCH_WHEEL_RECORD = "torch-wheel"
"""The key of the wheel in the record of a toolchain."""
_LAYOUT = 1
"""Counts changes of what is made of the same wheel."""
_STUB_LIBRARIES = (*TORCH_LIBRARIES, "torch_xpu", "c10_xpu")
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_PRERELEASE = re.compile(r"\d(?:\.dev|a|b|rc)\d")


@dataclass(frozen=True)
class TorchWheel:
    """A Torch wheel for this machine, which the user gave."""

    path: Path
    metadata: Facts
    """See `read_torch_wheel`."""
    store: Store
    runner: Runner

    @property
    def name(self) -> str:
        """The file's name."""
        return str(self.metadata["name"])

    @property
    def release(self) -> Version:
        """`2.13` of `2.13.0+rocm7.1`."""
        return _parse_release(self.metadata["version"])

    @cached_property
    def backend(self) -> str:
        """The backend that it was built for, as variants call it."""
        fields = self.metadata["built_for"]
        known = BACKENDS.load(plugins=True)
        device = next((b.name for b in known if b.torch_field in fields), None)
        return device or next(b.name for b in known if b.runs_on_cpu)

    @cached_property
    def backend_release(self) -> Version | None:
        """CUDA 12.6, ROCm 7.1, oneAPI 2025.3; None for the CPU."""
        backend = BACKENDS.get(self.backend)
        text = self.metadata["built_for"].get(backend.torch_field)
        return _parse_release(backend.torch_release(text)) if text else None

    def __str__(self) -> str:
        """E.g. `Torch 2.13 for rocm 7.1`."""
        release = f" {self.backend_release}" if self.backend_release else ""
        return f"Torch {self.release} for {self.backend}{release}"

    def fits(self, requires: Requirements) -> bool:
        """True for variants of its backend's release that are built against its Torch."""
        if requires.torch is None or requires.system != self.metadata["system"]:
            return False
        wanted = Version.parse(requires.torch)
        fits = self.release == wanted if requires.torch_exact else self.release >= wanted
        toolkit = Version.parse(requires.toolkit) if requires.toolkit else None
        return fits and self.is_for(requires.backend, toolkit)

    def is_for(self, backend: str, release: Version | None) -> bool:
        """True for its backend, in its release, and for backends that have no build of their own.

        Builds for macOS serve Metal as well.
        """
        known, is_darwin = BACKENDS.get(backend), self.metadata["system"].endswith("darwin")
        if not known.torch_field and (is_darwin or not known.runs_on_cpu):
            return True
        if backend != self.backend:
            return False
        return self.backend_release == (
            Version((release.major, release.minor)) if release else None
        )

    @property
    def recipe(self) -> Recipe:
        """The recipe of its store entry."""
        inputs = {"layout": _LAYOUT, "given": self.metadata["sha256"]}
        return Recipe("torch", self.metadata["version"], inputs)

    @property
    def facts(self) -> Facts:
        """The facts that `probe.torch_facts` gives; the folders are there after `provide`."""
        root = StoreEntry(self.store.root / self.recipe.name).root
        flavour = {key: self.metadata[key] for key in ("version", "built_for", "cxx11_abi")}
        return flavour | {
            "root": str(root / "torch"),
            "include_dirs": [str(folder) for folder in torch_include_folders(root)],
            "library_dir": str(root / TORCH_LINK_FOLDER),
        }

    @property
    def record(self) -> tuple[tuple[str, str], ...]:
        """The file's name and digest for the record of a toolchain."""
        return ((TORCH_WHEEL_RECORD, f"{self.name} sha256:{self.metadata['sha256']}"),)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user."""
        if not _PRERELEASE.search(self.metadata["version"]):
            return ()
        version = self.metadata["version"]
        built = f"Torch {self.release} may not load what is built against it"
        return (f"{self.name} is the pre-release {version}: {built}",)

    def provide(self) -> StoreEntry:
        """The wheel's files as a store entry, unpacked the first time.

        Raises:
            ToolchainError: the wheel is damaged, or a stub cannot be made.
        """
        return self.store.ensure(self.recipe, self._make)

    def _make(self, root: Path) -> Mapping[str, Any]:
        sha256, size = self.metadata["sha256"], self.metadata["size"]
        wheel = Wheel(LockedWheel(self.name, sha256, size), self.path)
        try:
            wheel.unpack(root, torch_destination)
        finally:
            wheel.close()
        stubs = {f"lib{name}.so": () for name in _STUB_LIBRARIES}
        LinkStubMaker(find_cxx(), self.runner).make_libraries(root / TORCH_LINK_FOLDER, stubs)
        return {"sources": [FetchedWheel(self.name, sha256, size, 0, "local").to_json()]}


def open_wheel(path: Path, cache: Path, runner: Runner) -> TorchWheel:
    """Look into a wheel; its digest is remembered while it stays as it is.

    Raises:
        ToolchainError: there is no such file, or it is not a Torch wheel for this machine.
    """
    if not path.is_file():
        raise ToolchainError(f"--torch-wheel: `{path}` is not a file")

    def ask() -> tuple[Facts, tuple[str, ...]]:
        return read_torch_wheel(path, sha256_of_file(path), path.stat().st_size), (str(path),)

    facts = FactCache(cache).get(f"torch wheel/2 {path}", ask)
    if facts["system"] != str(host_system()):
        raise ToolchainError(
            f"{path.name} is for {facts['system']}; this machine is {host_system()}",
            hint="give the wheel for this machine",
        )
    return TorchWheel(path, facts, Store(cache / "store"), runner)


def _parse_release(text: str) -> Version:
    match = _RELEASE.match(text)
    if match is None:
        raise ToolchainError(f"`{text}` is not a release that kbuild understands")
    return Version((int(match[1]), int(match[2])))


_SHOWN = 6


def open_torch_wheels(paths: Iterable[Path], cache: Path, runner: Runner) -> tuple[TorchWheel, ...]:
    """The wheels, each of a Torch release and backend of the matrix.

    Raises:
        ToolchainError: a file is not a Torch wheel for this machine, or is not in the matrix.
    """
    wheels = tuple(open_wheel(path, cache, runner) for path in dict.fromkeys(paths))
    for wheel in wheels:
        _validate_in_matrix(wheel)
    return wheels


def validate_wheels_are_used(wheels: Sequence[TorchWheel], plans: Sequence[VariantPlan]) -> None:
    """Refuse a wheel that no chosen variant is built against: the user meant it to be used.

    Raises:
        UsageError: one fits none of the variants that were chosen, or is for a GPU of a variant
            whose C++ knows none.
    """
    for wheel in wheels:
        _reject_for_dsl_variant(wheel, plans)
        if not any(wheel.fits(plan.requires) for plan in plans):
            raise UsageError(
                f"{wheel.name} is {wheel}, which none of the chosen variants is built against: "
                f"{_listed(plans)}",
                hint="choose a variant of its release and backend, or leave the wheel out; "
                "`kbuild list-variants --all` lists what there is",
            )


def _reject_for_dsl_variant(wheel: TorchWheel, plans: Sequence[VariantPlan]) -> None:
    """Refuse a wheel for GPUs if the variant's only C++ is that of launchers, built for the CPU."""
    fits = [plan for plan in plans if wheel.fits(plan.requires)]
    plain = [plan for plan in plans if plan.aot and plan.requires.backend != plan.backend]
    for plan in plain if not fits else ():
        if wheel.is_for(plan.backend, plan.parsed_variant.backend_version):
            raise UsageError(
                f"{wheel.name} is {wheel}, but {plan.variant} has kernels in Python DSLs alone: "
                f"their C++ is built against Torch {plan.requires.torch} for "
                f"{plan.requires.backend}, and runs on Torch for {plan.backend} as well",
                hint=f"give a wheel for {plan.requires.backend}, or leave it out; to try the "
                f"variant with this Torch, install it and run `kbuild check --python`",
            )


def _listed(plans: Sequence[VariantPlan]) -> str:
    names = [plan.variant for plan in plans]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none was chosen"


def _validate_in_matrix(wheel: TorchWheel) -> None:
    """Refuse a release outside of the matrix: no variant could be named after it."""
    here = [entry for entry in matrix_entries() if entry.system == host_system()]
    fits = [entry for entry in here if wheel.is_for(entry.backend, entry.backend_version)]
    if any(entry.torch == wheel.release for entry in fits):
        return
    if fits:
        known = f"has {wheel.backend} with Torch {_distinct(entry.torch for entry in fits)}"
    else:
        others = (e.backend_version for e in here if e.backend == wheel.backend)
        known = f"has {wheel.backend} {_distinct(filter(None, others)) or 'on other systems only'}"
    raise ToolchainError(
        f"{wheel.name} is {wheel}, which is not in kbuild's matrix: it {known}",
        hint="a variant is named after its releases, and the client loads it under these only; "
        "give a wheel of a release in the matrix, or use a newer kbuild",
    )


def _distinct(versions: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, versions)))

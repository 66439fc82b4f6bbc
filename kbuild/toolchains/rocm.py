"""ROCm for device code: `$ROCM_PATH`, `/opt/rocm`, or where `hipcc` on PATH belongs to.

Any build of Torch serves variants on the stable ABI. A Torch built for ROCm ships its headers
translated by its own hipify (`cudaError_t` in `torch/csrc/stable/macros.h` is `hipError_t` there,
`USE_CUDA` is `USE_ROCM`); other builds ship them as they are written. For those, the few headers
that differ are translated the same way, into a folder that goes before Torch's own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.plan.plan import Requirements
from kbuild.system.code_digest import code_digest
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe, Store, open_store
from kbuild.system.temporary import temporary_folder
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.build_tools import INSTALL_CXX
from kbuild.toolchains.facts import Facts, compiler_facts
from kbuild.toolchains.host import HostToolchains

_SCRIPT = Path(__file__).with_name("hipify_headers.py")
_FOLDERS = ("torch/csrc/stable", "torch/csrc/inductor/aoti_torch/c", "torch/headeronly")
"""Everything below Torch's include folder that sources on the stable ABI may include."""


def hip_headers(torch: Path, version: str, python: Path, store: Store, runner: Runner) -> Path:
    """The folder of translated headers, made when it is not in the store.

    Raises:
        ToolchainError: hipify failed.
    """

    def make(root: Path) -> Mapping[str, Any]:
        include = torch / "include"
        with temporary_folder("hipify") as scratch:
            fresh = scratch.resolve()
            for path in _headers(include):
                _copy(path, fresh / path.relative_to(include))
            hipify = str(torch / "utils" / "hipify")
            done = runner.run((str(python), "-I", "-B", str(_SCRIPT), hipify, str(fresh)))
            if not done.ok:
                raise ToolchainError(
                    f"Torch's hipify failed on its headers:\n{done.output.strip()}"
                )
            _keep_changed(fresh, include, root)
        return {"torch": str(torch)}

    return store.ensure(_recipe(torch, version), make).root


def _recipe(torch: Path, version: str) -> Recipe:
    digest = hashlib.sha256()
    for path in (*_headers(torch / "include"), *sorted((torch / "utils" / "hipify").glob("*.py"))):
        digest.update(f"{path.relative_to(torch)}\0".encode() + path.read_bytes() + b"\0")
    inputs = {"torch": digest.hexdigest(), "kbuild": code_digest(__file__, _SCRIPT)}
    return Recipe("torch-hip-headers", version.partition("+")[0], inputs)


def _headers(include: Path) -> Iterator[Path]:
    folders = (include / name for name in _FOLDERS)
    yield from sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def _keep_changed(fresh: Path, include: Path, target: Path) -> None:
    for path in sorted(path for path in fresh.rglob("*") if path.is_file()):
        name = path.relative_to(fresh)
        before = include / name
        if not before.is_file() or path.read_bytes() != before.read_bytes():
            _copy(path, target / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


_HIP_COMPILERS = ("llvm/bin/clang++", "lib/llvm/bin/clang++", "llvm/bin/amdclang++")
_TORCH_INCLUDE_ENTRY = "KBUILD_TORCH_INCLUDE_DIRS"
_RELEASE = re.compile(r"(\d+\.\d+)")


@dataclass(frozen=True)
class RocmInstallation:
    """The folder that `ROCM_PATH` points to."""

    path: Path

    @property
    def compiler(self) -> Path | None:
        """clang, never the wrapper `hipcc`, which CMake refuses; None when there is none."""
        places = (self.path / name for name in _HIP_COMPILERS)
        return next((place for place in places if place.is_file()), None)

    @property
    def hip_package(self) -> Path | None:
        """The folder of CMake's package `hip`; None when there is none."""
        places = [self.path / lib / "cmake" / "hip" for lib in ("lib", "lib64")]
        return next((place for place in places if place.is_dir()), None)

    @property
    def version(self) -> str | None:
        """The ROCm release, e.g. `7.2.0`, from the file that every installation has."""
        for name in ("version", "version-rocm"):
            file = self.path / ".info" / name
            if file.is_file():
                return file.read_text().strip().split("-")[0]
        return None


def _without_device(requires: Requirements) -> Requirements:
    """The requirements on the host's toolchain: C++ and Torch."""
    return replace(requires, backend="cpu", toolkit=None)


def _unsupported_torch_reason(requires: Requirements, facts: Facts) -> str | None:
    """The reason why the Torch does not fit: the full ABI needs one built for the same ROCm.

    For the stable ABI any build will do, see `kbuild.toolchains.rocm`.
    """
    torch = facts["torch"]
    if requires.torch is None or not requires.torch_exact:
        return None
    hip = torch["built_for"].get("hip", "")
    match = _RELEASE.match(hip)
    if match is not None and match[1] == requires.toolkit:
        return None
    has = f"{torch['version']}" + (f" for ROCm {hip}" if hip else "")
    return (
        f"needs Torch {requires.torch} built for ROCm {requires.toolkit}; "
        f"{facts['python']['executable']} has {has}"
    )


def _with_hip(
    base: Toolchain,
    rocm: Path,
    compiler: Path,
    versions: tuple[tuple[str, str], ...],
    host: HostToolchains,
) -> Toolchain:
    """The host's toolchain with the HIP of a ROCm added.

    Raises:
        ToolchainError: the host's C++ library is not GCC's.
    """
    # What makes CMake's HIP language and `find_package(hip)` use this folder and no other.
    gcc = _gcc_folder(base, host)
    flags = (  # CMake takes off quotes around the whole value: no path with spaces comes first
        f"--gcc-install-dir={gcc}",
        f"--rocm-path={rocm}",
        f"-ffile-prefix-map={rocm}=/rocm",
    )
    entries = (
        ("CMAKE_HIP_PLATFORM", "amd"),
        ("CMAKE_HIP_COMPILER", str(compiler)),
        ("CMAKE_HIP_COMPILER_ROCM_ROOT", str(rocm)),
        ("CMAKE_HIP_FLAGS", shlex.join(flags)),
        ("ROCM_PATH", str(rocm)),
        ("hip_ROOT", str(rocm)),
    )
    return replace(
        base,
        source=RocmToolchains.name,
        cache=(*_torch_entries_for_hip(base, host), *entries),
        versions=(*base.versions, *versions),
        env={**base.env, "ROCM_PATH": str(rocm), "HIP_PLATFORM": "amd"},
    )


def _torch_entries_for_hip(base: Toolchain, host: HostToolchains) -> tuple[tuple[str, str], ...]:
    """The entries of `base`, and Torch's hipify.

    The headers of a Torch that was not built for ROCm get translated ones before them.
    """
    torch, entries = host.facts["torch"], dict(base.cache)
    if torch is None:
        return base.cache
    root = Path(torch["root"])
    entries["KBUILD_HIPIFY_DIR"] = str(root / "utils" / "hipify")
    if _TORCH_INCLUDE_ENTRY in entries and not torch["built_for"].get("hip"):
        store = open_store(host.cache.folder)
        translated = hip_headers(root, torch["version"], base.python, store, host.runner)
        entries[_TORCH_INCLUDE_ENTRY] = f"{translated};{entries[_TORCH_INCLUDE_ENTRY]}"
    return tuple(entries.items())


def _gcc_folder(base: Toolchain, host: HostToolchains) -> Path:
    """The folder of the host compiler's start files, by which libstdc++'s headers are found.

    Raises:
        ToolchainError: the compiler names no such folder.
    """
    cxx = dict(base.cache)["CMAKE_CXX_COMPILER"]

    def ask() -> tuple[Facts, tuple[str, ...]]:
        done = host.runner.run((cxx, "-print-file-name=crtbegin.o"))
        return {"start": done.output.strip()}, (str(cxx),)

    start = Path(host.cache.get(f"start files {cxx}", ask)["start"])
    if not start.is_absolute():
        raise ToolchainError(f"`{cxx}` names no GCC, whose C++ library HIP needs", hint=INSTALL_CXX)
    return start.resolve().parent


ROCM_PATH_VARIABLE = "ROCM_PATH"
_DEFAULT_ROCM = Path("/opt/rocm")


@dataclass(frozen=True)
class RocmToolchains(ToolchainSource):
    """An installed ROCm for device code; `host` for the rest."""

    host: HostToolchains
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    usual: Path = _DEFAULT_ROCM
    """Folder that ROCm's packages install to."""

    name = "rocm"
    backends = ("rocm",)

    @cached_property
    def folder(self) -> RocmInstallation | None:
        """The ROCm that is used; None without one."""
        return find_rocm(self.environ, self.usual)

    def unsupported_reason(self, requires: Requirements) -> str | None:
        """See `ToolchainSource.unsupported_reason`."""
        if requires.backend != "rocm" or requires.toolkit is None:
            return "a ROCm compiles for ROCm only"
        return (
            self.host.unsupported_reason(_without_device(requires))
            or self._unsupported_rocm_reason(requires.toolkit)
            or _unsupported_torch_reason(requires, self.host.facts)
        )

    def _unsupported_rocm_reason(self, toolkit: str) -> str | None:
        """The reason why the ROCm does not fit: a build loads only under its own release."""
        rocm = self.folder
        if rocm is None:
            places = f"${ROCM_PATH_VARIABLE}, {self.usual} or on PATH"
            return f"needs ROCm {toolkit}; there is none at {places}"
        if rocm.version is None:
            return f"needs ROCm {toolkit}; {rocm.path} does not say which release it is"
        release = _RELEASE.match(rocm.version)  # 7.2 of 7.2.1
        if release is None or release[1] != toolkit:
            return f"needs ROCm {toolkit}; {rocm.path} has {rocm.version}"
        missing = [
            what
            for what, path in (("clang", rocm.compiler), ("HIP's CMake package", rocm.hip_package))
            if path is None
        ]
        return f"{rocm.path} has no {' and no '.join(missing)}" if missing else None

    def provision(self, requires: Requirements) -> Toolchain:
        """See `ToolchainSource.provision`."""
        reason = self.unsupported_reason(requires)
        rocm = self.folder
        if reason is not None or rocm is None or rocm.compiler is None:
            raise ToolchainError(f"the ROCm toolchain does not fit: {reason}")
        clang = compiler_facts(rocm.compiler, self.host.cache, self.host.runner)["version"]
        versions = (("rocm", rocm.version or ""), ("clang", clang))
        base = self.host.provision(_without_device(requires))
        return _with_hip(base, rocm.path, rocm.compiler, versions, self.host)


def find_rocm(environ: Mapping[str, str], usual: Path = _DEFAULT_ROCM) -> RocmInstallation | None:
    """The folder that the user names, whatever is in it; otherwise the first that is there."""
    asked = environ.get(ROCM_PATH_VARIABLE)
    if asked:
        return RocmInstallation(Path(asked).absolute())
    if usual.is_dir():
        return RocmInstallation(usual)
    hipcc = shutil.which("hipcc", path=environ.get("PATH"))
    return RocmInstallation(Path(hipcc).resolve().parent.parent) if hipcc else None

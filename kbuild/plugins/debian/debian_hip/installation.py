"""The store entry of Debian's HIP packages, in the shape of a ROCm installation.

It holds `llvm/bin/clang++`, `include/hip`, `amdgcn/bitcode`, a stub of `lib/libamdhip64.so` and
the CMake packages `hip` and `hip-lang`. `scripts/refresh_debian_hip.py` writes `data/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kbuild.plugins.debian.deb_archive import unpack_deb
from kbuild.plugins.debian.debian_packages import DebianPackage, PackageSet, UnpackRules
from kbuild.system.code_digest import code_digest
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe
from kbuild.system.temporary import environment_with_tmpdir

_DATA = resources.files("kbuild.plugins.debian.debian_hip") / "data"
_DATA_FILES = (
    "packages.json", "symbols.txt", "layout.toml", "hip-config.cmake", "hip-lang-config.cmake",
)  # fmt: skip


@dataclass(frozen=True)
class DebianHipPins:
    """Everything that a store entry is made from."""

    suite: str
    rocm: int
    """Major release of the ROCm that the result is for: the runtime's soname."""
    clang: str
    hip: str
    packages: tuple[DebianPackage, ...]
    digest: str
    """SHA-256 over all data files: another digest, another store entry."""

    @property
    def soname(self) -> str:
        """Of the HIP runtime."""
        return f"libamdhip64.so.{self.rocm}"

    @property
    def shelf(self) -> PackageSet:
        """What is fetched."""
        return PackageSet(self.suite, self.packages, "install ROCm")

    @property
    def recipe(self) -> Recipe:
        """The store entry."""
        code = code_digest(__file__)
        return Recipe("debian-hip", self.hip, {"data": self.digest, "kbuild": code})


@cache
def pins() -> DebianHipPins:
    """The packages that this kbuild was tried with."""
    data = json.loads(data_text("packages.json"))
    packages = tuple(DebianPackage(**package) for package in data.pop("packages"))
    whole = "\0".join(data_text(name) for name in _DATA_FILES)
    return DebianHipPins(
        **data, packages=packages, digest=hashlib.sha256(whole.encode()).hexdigest()
    )


def data_text(name: str) -> str:
    """One data file."""
    return (_DATA / name).read_text("utf-8")


@cache
def unpack_rules() -> UnpackRules:
    """Where the packages' files go."""
    return UnpackRules.parse(data_text("layout.toml"))


def make_hip_stub(folder: Path, soname: str, symbols: str, cxx: Path, runner: Runner) -> None:
    """Write `folder/<soname>` and the link `libamdhip64.so`.

    Args:
        folder: gets the library; exists.
        soname: e.g. `libamdhip64.so.7`.
        symbols: a line `name version` for each symbol.
        cxx: the host's compiler, as assembler and linker.
        runner: starts it.

    Raises:
        ToolchainError: the compiler failed.
    """
    pairs = [(name, version) for name, version in map(str.split, symbols.splitlines())]
    source, script = folder / "stub.s", folder / "stub.map"
    source.write_text(assembly(name for name, _ in pairs))
    script.write_text(version_script(pairs))
    flags = (f"-Wl,-soname,{soname}", f"-Wl,--version-script={script.name}", "-Wl,--build-id=none")
    command = (str(cxx), "-shared", "-nostdlib", *flags, "-o", soname, source.name)
    done = runner.run(command, cwd=folder, env=environment_with_tmpdir(folder))
    if not done.ok:
        raise ToolchainError(f"{cxx} could not make {soname}:\n{done.output.strip()}")
    source.unlink()
    script.unlink()
    (folder / "libamdhip64.so").symlink_to(soname)


def assembly(names: Iterable[str]) -> str:
    """Every name at one address, as a function."""
    symbols = (f".globl {name}\n.type {name}, @function\n{name}:\n" for name in names)
    return f'.text\n{"".join(symbols)}\n.section .note.GNU-stack,"",@progbits\n'


def version_script(symbols: Iterable[tuple[str, str]]) -> str:
    """A node for each version, in the order in which they first come."""
    nodes: dict[str, list[str]] = {}
    for name, version in symbols:
        nodes.setdefault(version, []).append(name)
    return "".join(
        f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in nodes.items()
    )


_TOOLS = ("clang", "lld", "clang-offload-bundler")
_LOADER = "llvm/lib/ld-linux-x86-64.so.2"


@dataclass(frozen=True)
class DebianHipMaker:
    """How an entry is made, packages aside."""

    pins: DebianHipPins
    target: Path
    """Where the files will be: the tools name their loader by its whole path."""
    patchelf: Path
    cxx: Path
    """The host's compiler."""
    runner: Runner

    def fill(self, folder: Path, debs: Sequence[Path]) -> Mapping[str, Any]:
        """Make the entry in `folder`, to be moved to `target`; see `kbuild.system.store.MakeEntry`.

        Raises:
            ToolchainError: a package or a tool is not as expected.
        """
        for deb in debs:
            unpack_deb(deb, folder, unpack_rules().destination)
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
        make_hip_stub(folder, self.pins.soname, data_text("symbols.txt"), self.cxx, self.runner)
        for name in ("hip", "hip-lang"):
            config = folder / "cmake" / name / f"{name}-config.cmake"
            config.parent.mkdir(parents=True)
            config.write_text(data_text(config.name).replace("@SONAME@", self.pins.soname))

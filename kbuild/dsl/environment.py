"""The environment of a DSL: its pinned wheels, each unpacked once into kbuild's store.

Nothing is resolved: a section pins what is installed, and nothing else is. A wheel is an entry of
its own, named after its SHA-256; the bytes are checked against that and the wheel's RECORD. An
environment is named after pins and interpreter, and its files are hard links to those of its
wheels: another list of pins costs what it alone has.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.files import link_file, sha256_of_file
from kbuild.system.store import Recipe, Store, StoreEntry
from kbuild.toolchains.build_tools import find_cxx
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.package_index import (
    UnreachableIndexError,
    WheelFetcher,
    naming_missing,
)

if TYPE_CHECKING:
    from unearth import Link, Package

_LAYOUT = 1
"""Version of the layout of entries; a change of what is installed from the same wheels counts it
up."""
_WHEEL = "wheel-"
"""Prefix of the kind of store entries that hold one unpacked wheel."""
_SYSTEM = "x86_64-linux"
_ASSEMBLERS = ("ptxas", "ptxas-blackwell", "tileiras")
"""Assemblers in a folder `bin` of a wheel."""
_VERSION = re.compile(r"V(?P<version>\d+\.\d+\.\d+)")
_UNLISTED = re.compile(r"[^/]+\.dist-info/RECORD(\.\w+)?")
"""Files that RECORD does not list: itself and its signatures."""
_DATA = re.compile(r"[^/]+\.data/(?P<kind>[^/]+)/(?P<path>.+)")
NVCC = "nvcc"
"""Name for the ptxas of the pinned nvcc wheel."""
_NVCC_RELEASE = "13.0"
TOOLKIT, CXX, HIP = "cuda-", "c++", "hip"
"""Names of compilers outside of the environment; `cuda-` is followed by a release: `cuda-13.0`."""


@dataclass(frozen=True)
class DslEnvironments:
    """Provides environments; installs those that are missing."""

    installer: WheelInstaller

    def recipe(self, language: str, pins: Sequence[str]) -> Recipe:
        """Return the recipe of an environment: language, pins and interpreter."""
        inputs = {"layout": _LAYOUT, "pins": sorted(pins), "python": _interpreter()}
        return Recipe(language, _pin(pins[0])[1], inputs)

    def provide(self, language: str, pins: Sequence[str]) -> StoreEntry:
        """Return the installed environment; its root is the folder to import from.

        Args:
            language: names the entry.
            pins: exact pins such as `triton==3.9.0`; the first gives the entry its version.

        Raises:
            ToolchainError: a pin is not exact, there is no such wheel for this interpreter and
                system, or it cannot be fetched.
        """
        recipe, store = self.recipe(language, pins), self.installer.store
        entry = store.find(recipe)
        if entry is not None:
            return entry.touch()
        if str(host_system()) != _SYSTEM:
            raise ToolchainError(f"{language} compiles on {_SYSTEM}; this is {host_system()}")
        versions = tuple(map(_pin, pins))
        title = f"{versions[0][0]} {versions[0][1]}"
        with naming_missing(title, pins), self.installer.fetcher() as fetcher:
            wheels = tuple(_StoredWheel.of(fetcher, self.installer, *pin) for pin in versions)
        return store.ensure(recipe, _EnvironmentBuilder(self.installer, wheels).make)

    def assembler(self, environment: StoreEntry, name: str, host: str = "") -> tuple[Path, str]:
        """Return path and version of the assembler or compiler of that name.

        `ptxas`, `ptxas-blackwell` and `tileiras` are those of the environment's wheels; `nvcc` is
        the ptxas of the pinned CUDA; `cuda-13.0` is the nvcc of that release, with all that it
        needs; `c++` is the host's compiler; `hip` is the clang of an installed ROCm. With `host`,
        the system of another processor, `c++` and `cuda-13.0` compile host code for it.

        Raises:
            ToolchainError: it is not there, or cannot be fetched.
        """
        if name == NVCC:
            return self._cuda_program("ptxas", _NVCC_RELEASE)
        if name == CXX:
            return self._with_version(find_cxx(host or None))
        if name == HIP:
            return self._hip()
        if name.startswith(TOOLKIT) and host:
            entry = self.installer.cross_cuda(name.removeprefix(TOOLKIT), host)
            return entry.root / "bin" / "nvcc", entry.version
        if name.startswith(TOOLKIT):
            return self._cuda_program("nvcc", name.removeprefix(TOOLKIT))
        known: Mapping[str, Mapping[str, str]] = environment.facts["assemblers"]
        if name not in known:
            raise ToolchainError(f"{environment.name} has no {name}")
        return environment.root / known[name]["path"], known[name]["version"]

    def _cuda_program(self, program: str, release: str) -> tuple[Path, str]:
        """The pinned CUDA's program, or the installed toolkit's if the index is unreachable."""
        from kbuild.toolchains.wheels.cuda import cuda_recipe

        locked, store = self.installer.lock.cuda[release], self.installer.store
        wheel = next(wheel for wheel in locked.programs if wheel.project == "nvidia-cuda-nvcc")
        try:
            # The whole toolkit is installed only for nvcc; ptxas is used from it if it is there.
            if program == "ptxas" and store.find(cuda_recipe(locked)) is None:
                entry = self._ptxas_alone(wheel)
            else:
                entry = self.installer.cuda(release)
        except UnreachableIndexError:
            installed = self._own_cuda_program(program, release)
            if installed is None:
                raise
            return installed
        return entry.root / "bin" / program, wheel.version

    def _ptxas_alone(self, wheel: LockedWheel) -> StoreEntry:
        recipe = Recipe("ptxas", wheel.version, {"layout": _LAYOUT, "wheel": wheel.sha256})
        entry = self.installer.store.find(recipe)
        if entry is None:
            with naming_missing("ptxas", (wheel,)), self.installer.fetcher() as fetcher:
                entry = self.installer.ensure(recipe, partial(_single_wheel, fetcher, wheel))
        return entry.touch()

    def _own_cuda_program(self, program: str, release: str) -> tuple[Path, str] | None:
        from kbuild.toolchains.device_compilers import find_device_compiler
        from kbuild.toolchains.facts import FactCache

        runner = self.installer.runner
        nvcc = find_device_compiler("cuda", FactCache(self.installer.store.root.parent), runner)
        if nvcc is None or not nvcc.fits(release):
            return None
        # The toolkit's own folder first: `PATH` may have another release.
        places = os.pathsep.join((str(nvcc.root / "bin"), os.environ.get("PATH", "")))
        path = shutil.which(program, path=places)
        version = path and _VERSION.search(runner.run((path, "--version")).output)
        return (Path(path), version["version"]) if path and version else None

    def _hip(self) -> tuple[Path, str]:
        from kbuild.toolchains.rocm import find_rocm

        rocm = find_rocm(os.environ)
        if rocm is None or rocm.compiler is None:
            hint = "install ROCm, or set ROCM_PATH to it"
            raise ToolchainError("there is no compiler for HIP", hint=hint)
        return self._with_version(rocm.compiler)

    def _with_version(self, program: Path) -> tuple[Path, str]:
        output = self.installer.runner.run((str(program), "--version")).output.strip()
        return program, output.splitlines()[0] if output else ""


@dataclass(frozen=True)
class _StoredWheel:
    """A wheel in the store."""

    entry: StoreEntry
    fetched: bool
    """True if the wheel was put into the store by this call."""

    @classmethod
    def of(
        cls, fetcher: WheelFetcher, installer: WheelInstaller, project: str, version: str
    ) -> _StoredWheel:
        """Return the wheel of that version which fits this interpreter best, after unpacking it.

        An index never replaces a file, so it is not asked again for a wheel that came from it.
        Files on this machine can change, and take precedence: they are hashed each time.
        """
        from packaging.utils import canonicalize_name

        known = _stored(installer.store, project, version)
        if known and not _compatible_files(version, fetcher.index.files(project, only_here=True)):
            return cls(known.touch(), fetched=False)
        local_files = fetcher.index.files(project, only_here=True)
        files = (
            local_files if _compatible_files(version, local_files) else fetcher.index.files(project)
        )
        link = _best_file(project, version, files)
        if link.is_file:
            digest = sha256_of_file(link.file_path)
        else:
            digest = next(iter((link.hash_option or {}).get("sha256", ())), "")
        if not digest:
            raise ToolchainError(f"the package index gives no SHA-256 of {link.filename}")
        wheel = LockedWheel(link.filename, digest, 0)
        # The interpreter, because the entry holds its bytecode.
        inputs = {"layout": _LAYOUT, "sha256": wheel.sha256, "python": _interpreter()}
        recipe = Recipe(f"{_WHEEL}{canonicalize_name(wheel.project)}", wheel.version, inputs)
        stored = installer.store.find(recipe)
        if stored is not None:
            return cls(stored.touch(), fetched=False)

        def make(root: Path) -> dict[str, Any]:
            source = fetcher.unpack((wheel,), root, _member_path)
            # Unpacked members are not executable, whatever the wheel says.
            for _, path in _assembler_paths(root):
                path.chmod(0o755)
            _compile(root)
            return {"sources": [source.to_json()]}

        return cls(installer.ensure(recipe, make), fetched=True)

    def source(self) -> dict[str, Any]:
        """See `kbuild.toolchains.wheels.package_index.FetchedWheel`."""
        source = dict(self.entry.facts["sources"][0])
        return source if self.fetched else {**source, "fetched": 0, "how": "store"}

    def refuse_damaged(self) -> None:
        """Raise ToolchainError if a wheel of an earlier run has changed since it was unpacked."""
        if not self.fetched and (differences := self.entry.differences()):
            raise ToolchainError(
                f"{self.entry.name} in the store has changed since it was installed: "
                f"{differences[0]}",
                hint="`kbuild toolchain prune --all` removes it; the next build installs it again",
            )


@dataclass(frozen=True)
class _EnvironmentBuilder:
    """Fills one environment."""

    installer: WheelInstaller
    wheels: tuple[_StoredWheel, ...]

    def make(self, root: Path) -> dict[str, Any]:
        """See `kbuild.system.store.MakeEntry`."""
        for wheel in self.wheels:
            wheel.refuse_damaged()
        members = self._members()
        _refuse_file_above(members)
        for path, entry in members.items():
            link_file(entry.root / path, root / path)
        return {
            "sources": [wheel.source() for wheel in self.wheels],
            "parts": [wheel.entry.name for wheel in self.wheels],
            "assemblers": dict(self._assemblers(root)),
        }

    def _members(self) -> dict[str, StoreEntry]:
        """Path -> the wheel that provides it: the last one of several, as with pip."""
        entries_by_path: dict[str, StoreEntry] = {}
        for wheel in self.wheels:
            for path in wheel.entry.members:
                if path in entries_by_path and path.endswith(".py"):  # drop the other's bytecode
                    entries_by_path.pop(Path(cache_from_source(path)).as_posix(), None)
            entries_by_path |= dict.fromkeys(wheel.entry.members, wheel.entry)
        return entries_by_path

    def _assemblers(self, root: Path) -> Iterator[tuple[str, dict[str, str]]]:
        for name, path in _assembler_paths(root):
            done = self.installer.runner.run((str(path), "--version"))
            version = _VERSION.search(done.output)
            if version is None:
                raise ToolchainError(f"`{path} --version`: {done.output.strip()[-300:]}")
            place = path.relative_to(root).as_posix()
            yield name, {"path": place, "version": version["version"]}


def _assembler_paths(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the assemblers of `_ASSEMBLERS` below `root`, with their names."""
    return ((name, path) for name in _ASSEMBLERS for path in sorted(root.glob(f"**/bin/{name}")))


def _refuse_file_above(members: Mapping[str, StoreEntry]) -> None:
    """Raise ToolchainError for a path that is a file in one wheel and a folder in another."""
    for path, entry in members.items():
        for folder in map(str, PurePosixPath(path).parents):
            if folder in members:
                raise ToolchainError(
                    f"`{folder}` is a file in {members[folder].name} and a folder in {entry.name}",
                    hint="`toolchain` pins both wheels, which cannot be installed together",
                )


def _single_wheel(fetcher: WheelFetcher, wheel: LockedWheel, root: Path) -> dict[str, Any]:
    def place(name: str) -> str | None:
        return "bin/ptxas" if name.endswith("/bin/ptxas") else None

    source = fetcher.unpack((wheel,), root, place)
    (root / "bin" / "ptxas").chmod(0o755)
    return {"sources": [source.to_json()]}


def _member_path(name: str) -> str | None:
    """Path to unpack a wheel's member to; None for scripts, headers and RECORD."""
    data = _DATA.fullmatch(name)
    if data is None:
        return None if _UNLISTED.fullmatch(name) else name
    return data["path"] if data["kind"] in {"purelib", "platlib"} else None


def _stored(store: Store, project: str, version: str) -> StoreEntry | None:
    """The stored wheel of that version from an index; None if there is not exactly one."""
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    entries = []
    for mark in store.root.glob(f"{_WHEEL}{canonicalize_name(project)}-*/entry.json"):
        entry = StoreEntry(mark.parent)
        recipe, source = entry.facts["recipe"], entry.facts["sources"][0]
        inputs = recipe["inputs"]
        if (
            recipe["kind"] == f"{_WHEEL}{canonicalize_name(project)}"
            and Version(recipe["version"]) == Version(version)
            and (inputs["layout"], inputs["python"]) == (_LAYOUT, _interpreter())
            # A file of this machine may have changed since, see `_StoredWheel.of`.
            and source["how"] != "local"
        ):
            entries.append(entry)
    # Two indexes may have given different files for one version.
    return entries[0] if len(entries) == 1 else None


def _compatible_files(
    version: str, packages: Sequence[Package], *, tagged: bool = True
) -> list[tuple[int, Link]]:
    """The wheels of that version, in any spelling, each with the rank of its best tag.

    With `tagged`, wheels are left out that are for other interpreters and systems.
    """
    from packaging.tags import sys_tags
    from packaging.utils import parse_wheel_filename
    from packaging.version import Version

    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    same = []
    for package in packages:
        _, file_version, _, tags = parse_wheel_filename(package.link.filename)
        if file_version == Version(version):
            same.append((min((ranks.get(tag, len(ranks)) for tag in tags)), package.link))
    return [candidate for candidate in same if candidate[0] < len(ranks) or not tagged]


def _best_file(project: str, version: str, packages: Sequence[Package]) -> Link:
    fitting = _compatible_files(version, packages)
    if fitting:
        ranked = ((not link.is_file, rank, link.filename, link) for rank, link in fitting)
        return min(ranked, key=lambda entry: entry[:3])[3]
    if _compatible_files(version, packages, tagged=False):
        raise ToolchainError(
            f"{project} {version} has no wheel for {_interpreter()} on {host_system()}",
            hint="run kbuild with another Python, or pin another version in `toolchain`",
        )
    raise ToolchainError(
        f"the package index has no wheel of {project} {version}",
        hint="`pip config list` shows the index; `toolchain` names the version",
    )


def _pin(text: str) -> tuple[str, str]:
    project, equals, version = text.replace(" ", "").partition("==")
    if not equals or not version or "*" in version:
        raise ToolchainError(f"`{text}` is not an exact pin", hint="write `name==version`")
    return project, version


def _interpreter() -> str:
    return f"CPython {sys.version_info.major}.{sys.version_info.minor}"


def _compile(root: Path) -> None:
    """Write bytecode now, since the store is read-only later; it does not depend on the path."""
    # Hashes, since times would make the bytes differ; unchecked, since sources never change there.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(root, quiet=2, stripdir=str(root), invalidation_mode=mode)

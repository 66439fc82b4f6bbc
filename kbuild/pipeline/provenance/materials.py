"""Finds what went into a build: store packages, local headers and programs, with licences."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomli

from kbuild.pipeline.provenance.documents import Material
from kbuild.system.processes import Runner
from kbuild.system.store import Store, StoreEntry
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.dependency_headers.pins import digest_of_folders
from kbuild.toolchains.facts import FactCache, Facts, compiler_facts

_COMPILER = re.compile(r"CMAKE_(\w+)_COMPILER")
_STARTED_BY_HOST_COMPILER = ("cc1plus", "collect2", "as", "ld")
"""Programs that a C++ driver starts, by `-print-prog-name`."""
_STARTED_BY_NVCC = ("ptxas", "fatbinary", "cudafe++", "bin2c", "../nvvm/bin/cicc")
"""Programs that nvcc starts, from its own folder."""
_LIBRARIES = ("libgcc.a",)
_SEARCHED = re.compile(r"#include <\.\.\.> search starts here:\n(.*?)End of search", re.DOTALL)
_LIBRARY_HEADERS = re.compile(r"/c\+\+(/|$)")


@dataclass(frozen=True)
class ProgramInspector:
    """Inspects programs, and remembers the result while they are unchanged."""

    runner: Runner
    cache: FactCache

    def of(self, toolchain: Toolchain, store: Path) -> Iterator[Material]:
        """The toolchain's programs that are not in kbuild's store."""
        yield self._program("cmake", toolchain.cmake)
        yield self._program("ninja", toolchain.ninja)
        for role, path in _compilers(toolchain.cache):
            if not path.is_relative_to(store):
                yield self._program(role, path)
                yield from self._contained(path)

    def _program(self, name: str, path: Path) -> Material:
        def ask() -> tuple[Facts, tuple[str, ...]]:
            files = sorted({path.resolve(), *self._started(path), *_nvcc_programs(path)})
            return {"digest": _contents_digest(files)}, tuple(map(str, files))

        version = str(compiler_facts(path, self.cache, self.runner)["version"])
        digest = self.cache.get(f"program and what it starts: {path}", ask)["digest"]
        scope = "the program and those that it starts"
        return Material(name, version, ("sha256", digest), scope, "tool")

    def _started(self, path: Path) -> Iterator[Path]:
        for name in _STARTED_BY_HOST_COMPILER:
            done = self.runner.run((str(path), f"-print-prog-name={name}"))
            program = shutil.which(done.output.strip()) if done.ok else None
            if program:
                yield Path(program).resolve()

    def _contained(self, path: Path) -> Iterator[Material]:
        """The parts that the compiler adds to every result, of libgcc and libstdc++."""
        version = str(compiler_facts(path, self.cache, self.runner)["version"])
        facts = self.cache.get(f"what a compiler adds: {path}", lambda: self._ask_added(path))
        for name, digest in facts.items():
            is_folder = "headers" in name
            scope = "every file of the folders" if is_folder else "the file's name and content"
            yield Material(name, version, ("sha256", digest), scope, "static")

    def _ask_added(self, path: Path) -> tuple[Facts, tuple[str, ...]]:
        libraries = {name: self._library(path, name) for name in _LIBRARIES}
        files = {name: file for name, file in libraries.items() if file}
        facts = {name: _contents_digest([file]) for name, file in files.items()}
        folders = self._headers(path)
        if folders:
            facts["libstdc++ headers"] = digest_of_folders(folders)
        return facts, tuple(map(str, (path.resolve(), *files.values(), *folders)))

    def _library(self, path: Path, name: str) -> Path | None:
        done = self.runner.run((str(path), f"-print-file-name={name}"))
        file = Path(done.output.strip())
        return file.resolve() if done.ok and file.is_absolute() and file.is_file() else None

    def _headers(self, path: Path) -> tuple[Path, ...]:
        done = self.runner.run((str(path), "-E", "-v", "-x", "c++", "/dev/null"))
        listed = _SEARCHED.search(done.output) if done.ok else None
        folders = [
            Path(line.strip()).resolve() for line in (listed[1] if listed else "").splitlines()
        ]
        own = [folder for folder in folders if _LIBRARY_HEADERS.search(str(folder))]
        inner = {f for f in own for other in own if f != other and f.is_relative_to(other)}
        return tuple(folder for folder in own if folder not in inner and folder.is_dir())


def _compilers(cache: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
    """Role such as `cxx`, `cuda` or `cuda host`, and the program; each program once."""
    seen = set()
    for key, value in cache:
        match = _COMPILER.fullmatch(key.replace("_HOST_COMPILER", "_host_COMPILER"))
        if match and value not in seen and Path(value).is_file():
            seen.add(value)
            yield f"compiler of {match[1].replace('_', ' ')}", Path(value)


def _nvcc_programs(path: Path) -> Iterator[Path]:
    folder = path.resolve().parent
    yield from ((folder / name).resolve() for name in _STARTED_BY_NVCC if (folder / name).is_file())


def _contents_digest(files: Iterable[Path]) -> str:
    """SHA-256 over the contents, in the order of the files' names."""
    hasher = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        hasher.update(f"{file.name}\0{content}\n".encode())
    return hasher.hexdigest()


_INCLUDE_VARIABLE = re.compile(r"KBUILD_(\w+)_INCLUDE_DIRS?")
_PYTHON_VERSION = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_TOOLKIT = ("nvvm/libdevice/libdevice.10.bc", "version.json")
_PROJECTS = {"torch": "torch", "tvm_ffi": "apache-tvm-ffi"}
"""Facts of CMake projects -> installed project that the headers are of."""


def local_headers(toolchain: Toolchain, store: Path) -> Iterator[Material]:
    """The materials of headers in folders outside the store."""
    releases = {name: text.split(" (")[0] for name, text in toolchain.headers}
    releases |= dict(toolchain.versions)
    for key, value in toolchain.cache:
        match = _INCLUDE_VARIABLE.fullmatch(key)
        folders = tuple(Path(part) for part in value.split(";") if part)
        here = tuple(folder for folder in folders if not folder.is_relative_to(store))
        if match and here:
            yield _header_material(match[1].lower(), here, releases)
        elif key == "CUDAToolkit_ROOT" and here:
            yield _toolkit_material(here[0], releases.get("cuda", ""))


def _toolkit_material(root: Path, version: str) -> Material:
    """An installed CUDA toolkit, by what nvcc links into device code and what it says it is."""
    files = [root / name for name in _TOOLKIT if (root / name).is_file()]
    contents = [f"{file.name}\0{_sha256(file.read_bytes())}\n" for file in files]
    digest = ("sha256", _sha256("".join(contents).encode()))
    return Material("cuda", version, digest, "its libdevice and version file", "device")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _header_material(name: str, folders: tuple[Path, ...], releases: dict[str, str]) -> Material:
    if name == "python":
        return _python_material(folders)
    project = _PROJECTS.get(name)
    installed = _installed_record_digest(project, folders[0]) if project else None
    if project is None or installed is None:
        digest, covers = digest_of_folders(folders), "every file of the folders"
    else:
        digest, covers = installed, "its files as pip recorded them"
    known = project or name
    purl = f"pkg:pypi/{known}@{releases[known]}" if project and known in releases else ""
    return Material(known, releases.get(known, ""), ("sha256", digest), covers, "headers", purl)


def _python_material(folders: tuple[Path, ...]) -> Material:
    try:
        release = _PYTHON_VERSION.search(
            (folders[0] / "patchlevel.h").read_text("utf-8", "replace")
        )
    except OSError:
        release = None
    digest = ("sha256", digest_of_folders(folders))
    scope = "every file of the folders"
    return Material("python headers", release[1] if release else "", digest, scope, "headers")


def _installed_record_digest(project: str, include: Path) -> str | None:
    """Digest of what pip recorded of the package itself; programs know where they were put."""
    package = next((up for up in include.parents if (up / "__init__.py").is_file()), None)
    if package is None:
        return None
    pattern = f"{project.replace('-', '_')}-*.dist-info/RECORD"
    record = next(iter(sorted(package.parent.glob(pattern))), None)
    if record is None:
        return None
    lines = record.read_text("utf-8").splitlines()
    own = sorted(
        line for line in lines if line.startswith(f"{package.name}/") and "sha256=" in line
    )
    return _sha256("\n".join(own).encode())


_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<arch>[^_]+)\.deb")
_ARCHIVE = ".a"


def store_entries_used(toolchain: Toolchain, store: Store) -> tuple[StoreEntry, ...]:
    """The store's entries that the toolchain's paths lead into, in name order."""
    inside = re.compile(re.escape(str(store.root)) + r"/([^/;:'\" ]+)/")
    names = {name for _, value in toolchain.cache for name in inside.findall(value)}
    return tuple(StoreEntry(store.root / name) for name in sorted(names))


def materials_of_entry(entry: StoreEntry) -> Iterator[Material]:
    """The materials of an entry; its own files where it was made from this machine's."""
    sources = entry.facts.get("sources", ())
    for source in sources:
        yield _material_from(source, entry)
    if not sources:
        # Static libraries one by one, for they end up in results; the rest of the entry as a whole.
        kind, rest = entry.facts["recipe"]["kind"], dict(entry.members)
        for path in sorted(rest):
            if path.endswith(_ARCHIVE):
                digest = ("sha256", rest.pop(path).split(":")[1])
                yield Material(path, kind, digest, f"a file of {kind}", "static")
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        digest = ("sha256", hashlib.sha256(text.encode()).hexdigest())
        yield Material(kind, entry.version, digest, "link stubs and headers", "interface")


def _material_from(source: Mapping[str, Any], entry: StoreEntry) -> Material:
    if "repository" in source:
        return _checkout(source, entry)
    if source.get("filename", "").endswith(".whl"):
        project, version = source["filename"].split("-")[:2]
        name = project.replace("_", "-").lower()
        purl = f"pkg:pypi/{name}@{quote(version)}?file_name={quote(source['filename'])}"
        return Material(name, version, ("sha256", source["sha256"]), "the wheel", "headers", purl)
    return _package(source)


def _package(source: Mapping[str, Any]) -> Material:
    """A Debian package: with name and version, or with the file's name, which holds both."""
    file = source.get("filename") or source["path"].rpartition("/")[2]
    match = _DEB.fullmatch(file)
    name, version = (match["name"], match["version"]) if match else (file, "")
    version = str(source.get("version", version))  # file names have no epoch
    arch = f"?arch={match['arch']}" if match else ""
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}{arch}"
    return Material(name, version, ("sha256", source["sha256"]), "the package", "tool", purl)


def _checkout(source: Mapping[str, Any], entry: StoreEntry) -> Material:
    name = entry.facts["recipe"]["kind"].removeprefix("source-")
    address = quote(f"git+{source['repository']}@{source['commit']}", safe="")
    purl = f"pkg:generic/{name}@{entry.version}?vcs_url={address}"
    digest = ("gitCommit", source["commit"])
    return Material(name, entry.version, digest, f"the tag {source['tag']}", "headers", purl)


_LICENCES_FILE = Path(__file__).with_name("licences.toml")


def with_licence(ingredient: Material) -> Material:
    """The ingredient, with what is known of it."""
    for entry in _known_licences():
        if fnmatchcase(ingredient.name.lower(), entry["name"]):
            return replace(ingredient, licence=entry["licence"], enters=entry["enters"])
    return ingredient


@lru_cache(maxsize=1)
def _known_licences() -> tuple[dict[str, Any], ...]:
    return tuple(tomli.loads(_LICENCES_FILE.read_text("utf-8"))["known"])

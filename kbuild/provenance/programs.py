"""This machine's programs that worked on a build: release and digest, never where they are.

A compiler is a driver and what it starts, so its digest is over all of them. Its own libraries and
headers end up in results: they are ingredients of their own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.provenance.ingredient import Ingredient
from kbuild.run import Runner
from kbuild.toolchains import Toolchain
from kbuild.toolchains.facts import FactCache, Facts, compiler
from kbuild.toolchains.sources.tree import digest_of

_COMPILER = re.compile(r"CMAKE_(\w+)_COMPILER")
_STARTED = ("cc1plus", "collect2", "as", "ld")
"""What a C++ driver says it starts, with `-print-prog-name`."""
_BESIDE = ("ptxas", "fatbinary", "cudafe++", "bin2c", "../nvvm/bin/cicc")
"""What nvcc starts, from its own folder."""
_LIBRARIES = ("libgcc.a",)
_SEARCHED = re.compile(r"#include <\.\.\.> search starts here:\n(.*?)End of search", re.DOTALL)
_LIBRARY_HEADERS = re.compile(r"/c\+\+(/|$)")


@dataclass(frozen=True)
class Programs:
    """Looks at programs, and remembers what it saw while they stay as they are."""

    runner: Runner
    cache: FactCache

    def of(self, toolchain: Toolchain, store: Path) -> Iterator[Ingredient]:
        """The toolchain's programs that are not in kbuild's store."""
        yield self._program("cmake", toolchain.cmake)
        yield self._program("ninja", toolchain.ninja)
        for role, path in _compilers(toolchain.cache):
            if not path.is_relative_to(store):
                yield self._program(role, path)
                yield from self._contained(path)

    def _program(self, name: str, path: Path) -> Ingredient:
        def ask() -> tuple[Facts, tuple[str, ...]]:
            files = sorted({path.resolve(), *self._started(path), *_beside(path)})
            return {"digest": _digest(files)}, tuple(map(str, files))

        version = str(compiler(path, self.cache, self.runner)["version"])
        found = self.cache.get(f"program and what it starts: {path}", ask)["digest"]
        words = "the program and those that it starts"
        return Ingredient(name, version, ("sha256", found), words, "tool")

    def _started(self, path: Path) -> Iterator[Path]:
        for name in _STARTED:
            done = self.runner.run((str(path), f"-print-prog-name={name}"))
            found = shutil.which(done.output.strip()) if done.ok else None
            if found:
                yield Path(found).resolve()

    def _contained(self, path: Path) -> Iterator[Ingredient]:
        """What the compiler adds to every result: parts of libgcc, and libstdc++'s templates."""
        version = str(compiler(path, self.cache, self.runner)["version"])
        facts = self.cache.get(f"what a compiler adds: {path}", lambda: self._ask_added(path))
        for name, digest in facts.items():
            yield Ingredient(name, version, ("sha256", digest), _covers(name), "static")

    def _ask_added(self, path: Path) -> tuple[Facts, tuple[str, ...]]:
        libraries = {name: self._library(path, name) for name in _LIBRARIES}
        found = {name: file for name, file in libraries.items() if file}
        facts = {name: _digest([file]) for name, file in found.items()}
        folders = self._headers(path)
        if folders:
            facts["libstdc++ headers"] = digest_of(folders)
        watched = (path.resolve(), *found.values(), *folders)
        return facts, tuple(map(str, watched))

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
        name = key.replace("_HOST_COMPILER", "_host_COMPILER")
        match = _COMPILER.fullmatch(name)
        if match and value not in seen and Path(value).is_file():
            seen.add(value)
            yield f"compiler of {match[1].replace('_', ' ')}", Path(value)


def _beside(path: Path) -> Iterator[Path]:
    folder = path.resolve().parent
    yield from ((folder / name).resolve() for name in _BESIDE if (folder / name).is_file())


def _digest(files: Iterable[Path]) -> str:
    """SHA-256 over the contents, in the order of the files' names."""
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.name}\0{content}\n".encode())
    return whole.hexdigest()


def _covers(name: str) -> str:
    return "every file of the folders" if "headers" in name else "the file's name and content"

"""CMake's compiler detection, kept for each toolchain: it runs once, not in each build tree."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import FactCache

KEPT_LANGUAGES = {"CXX", "CUDA"}
"""Languages whose detection is kept; others depend on too much of the machine."""
_CMAKE_FILES = "CMakeFiles"
_CMAKE_CACHE = "CMakeCache.txt"
_COMPILER_FILES = "CMake*Compiler.cmake"
_CONFIGURED = "CMAKE_PLATFORM_INFO_INITIALIZED:INTERNAL=1"
"""Entry by which CMake knows a tree that was configured before."""
_TOOLCHAIN_ENTRY = re.compile(
    r"(CMAKE_(?:ADDR2LINE|AR|DLLTOOL|LINKER|NM|OBJCOPY|OBJDUMP|RANLIB|READELF|STRIP|TAPI|MT"
    r"|CXX_COMPILER_AR|CXX_COMPILER_RANLIB|EXECUTABLE_FORMAT|HAVE_LIBC_PTHREAD)):\w+=(.*)"
)
"""Entries that depend on the toolchain alone."""
_PROGRAM = re.compile(r"CMAKE_\w*(?:COMPILER|LINKER|AR|NM|RANLIB)$")
_OF_A_VARIANT = ("KBUILD_", "CMAKE_CXX_CREATE_SHARED_")
"""Entries of a toolchain that detection does not read."""
_ENVIRONMENT = re.compile(
    r"PATH|COMPILER_PATH|LD_LIBRARY_PATH|(?:CMAKE|CUDA|CUDAToolkit|GCC|NVCC|NV)_?\w*|LC_ALL"
)


@dataclass(frozen=True)
class CompilerDetectionCache:
    """CMake's detection of some languages for one toolchain."""

    toolchain: Toolchain
    languages: Collection[str]
    facts: FactCache

    @property
    def is_kept(self) -> bool:
        """True where the answers may be kept at all."""
        return sys.platform == "linux" and set(self.languages) <= KEPT_LANGUAGES

    def seed(self, tree: Path) -> bool:
        """Start `tree` with the cached answers; False, with nothing done, if there are none."""
        known = self.facts.recall(self._question) if self.is_kept else None
        if known is None:
            return False
        shutil.rmtree(tree / _CMAKE_FILES, ignore_errors=True)
        folder = tree / _CMAKE_FILES / known["version"]
        folder.mkdir(parents=True)
        for name, text in known["files"].items():
            (folder / name).write_text(text)
        (tree / _CMAKE_CACHE).write_text("\n".join([_CONFIGURED, *known["entries"], ""]))
        return True

    def keep(self, tree: Path, since: int) -> None:
        """Remember the answers of a tree that was configured from nothing, at `since` (ns)."""
        files = sorted((tree / _CMAKE_FILES).glob(f"*/{_COMPILER_FILES}")) if self.is_kept else []
        versions = {file.parent.name for file in files}
        texts = {file.name: file.read_text() for file in files}
        # Files that name this tree would be wrong in any other.
        if len(versions) != 1 or any(str(tree) in text for text in texts.values()):
            return
        lines = (tree / _CMAKE_CACHE).read_text(errors="replace").splitlines()
        matches = [match for match in map(_TOOLCHAIN_ENTRY.match, lines) if match]
        entries = [match[0] for match in matches]
        programs = {match[2] for match in matches if _PROGRAM.match(match[1])}
        answer = {"version": versions.pop(), "files": texts, "entries": entries}
        compilers = {value for name, value in self.toolchain.cache if _PROGRAM.match(name)}
        observed = {str(self.toolchain.cmake)} | compilers | programs
        self.facts.remember(self._question, answer, tuple(filter(None, observed)), since)

    @property
    def _question(self) -> str:
        """All inputs of the answers but the programs themselves."""
        entries = [
            entry for entry in self.toolchain.cache if not entry[0].startswith(_OF_A_VARIANT)
        ]
        environment = {
            name: value
            for name, value in sorted(self.toolchain.env.items())
            if _ENVIRONMENT.fullmatch(name)
        }
        facts = [
            str(self.toolchain.cmake),
            str(self.toolchain.ninja),
            sorted(self.languages),
            sorted(entries),
            self.toolchain.compilers,
            environment,
        ]
        return f"compilers in CMake/1 {json.dumps(facts)}"

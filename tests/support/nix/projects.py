"""Projects by number: what kbuild accepts in many combinations, with files beside the sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from random import Random

from kbuild.system.sourcetree import SourceTree
from tests.support.command_project import write_files

COMPILED = ("cpu", "cuda", "rocm", "xpu", "metal")
PYTHON_ONLY = ("cann", "neuron", "tpu")
SUFFIXES = {"cuda": ".cu", "rocm": ".hip", "metal": ".metal"}
FOLDERS = ("csrc", "src", "src/deep er", "kernels/ö")
TOOLKITS = ("12.6", "12.8", "13", "13.0", "13.2.0", "14.1")
RELEASES = ("2", "2.9", "2.11", "2.12", "2.13.0", "2.14.1", "2.15", "3.0")
NOISE = {
    "README.md": "# Kernel\n",
    "CARD.md": "---\n---\n",
    "tests/test_kernel.py": "def test(): pass\n",
    "tests/reference.h": "#pragma once\n",
    "docs/index.md": "Words\n",
    "benchmarks/benchmark.py": "",
    "build/torch-cuda/__init__.py": "",
    ".github/workflows/build.yml": "on: push\n",
    "csrc/notes.md": "Words\n",
}


class Tree(SourceTree):
    """Files that are only in memory."""

    def __init__(self, files: dict[str, str]) -> None:
        super().__init__(Path("/nowhere"))
        self._files = {str(PurePosixPath(path)): text for path, text in files.items()}

    def is_file(self, path: str) -> bool:
        return str(PurePosixPath(path)) in self._files

    def is_dir(self, path: str) -> bool:
        return any(PurePosixPath(path) in PurePosixPath(file).parents for file in self._files)

    def is_inside(self, path: str) -> bool:
        return True

    def read_bytes(self, path: str, limit: int = 0) -> bytes:
        return self._files[str(PurePosixPath(path))].encode()

    def walk(self, folder: str, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
        below = f"{PurePosixPath(folder)}/"
        return tuple(sorted(file for file in self._files if file.startswith(below)))


class Generated:
    """One project: `files` by path, `build.toml` among them."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)  # noqa: S311 - the same projects every time
        self.name = self.random.choice(("relu", "my-kernel", "k2", "a-b-c"))
        self.framework = self.random.choice(("torch", "torch", "torch", "tvm-ffi", "torch-noarch"))
        names = [*COMPILED, *PYTHON_ONLY]
        self.backends = self.random.sample(names, self.random.randint(1, 6))
        self.files: dict[str, str] = {}
        self.pyext = self.random.choice(([], ["json"], ["json", "cuh"]))
        if self._maybe(0.7):
            self.files |= NOISE
        lines = [*self._general(), *self._framework()]
        if self.framework in {"torch", "tvm-ffi"}:
            for backend in COMPILED:
                if backend in self.backends and self._maybe(0.8):
                    for index in range(self.random.choice((1, 1, 2))):
                        lines += self._kernel(backend, index)
        self._package()
        self.files["build.toml"] = "\n".join(lines) + "\n"

    @property
    def tree(self) -> Tree:
        return Tree(self.files)

    def write(self, root: Path) -> Path:
        write_files(root, self.files)
        return root

    def _maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def _bounds(self, versions: tuple[str, ...]) -> list[str]:
        low, high = sorted(self.random.sample(range(len(versions)), 2))
        both = (f'minver = "{versions[low]}"', f'maxver = "{versions[high]}"')
        return [line for line in both if self._maybe(0.5)]

    def _general(self) -> list[str]:
        older = self.framework == "torch-noarch" and self._maybe(0.2)
        self.is_newest = not older and self._maybe(0.7)
        edition = ["edition = 5"] if self.is_newest else []
        version = [] if older else ["version = 3"]
        if older:  # edition 3: nothing but Python
            self.framework, self.pyext = "", []
        listed = ", ".join(f'"{backend}"' for backend in self.backends)
        lines = ["[general]", f'name = "{self.name}"', *version, *edition, 'license = "MIT"']
        lines.append(f"backends = [{listed}]")
        if "cuda" in self.backends and self._maybe(0.5):
            lines += ["[general.cuda]", *self._bounds(TOOLKITS)]
        return lines

    def _framework(self) -> list[str]:
        if not self.framework:
            return []
        lines = [f"[{self.framework}]", f"pyext = {self.pyext}"]
        if self.framework == "torch-noarch":
            return lines
        root = "tvm-ffi-ext" if self.framework == "tvm-ffi" else "torch-ext"
        lines += self._sources(root, ".cpp", "binding")
        if self.framework == "torch":
            lines += self._bounds(RELEASES) if self._maybe(0.4) else []
            lines += self._stable_abi() if self._maybe(0.4) else []
        return lines

    def _stable_abi(self) -> list[str]:
        if not self.is_newest or self._maybe(0.5):
            return [f'stable-abi = "{self.random.choice(RELEASES)}"']
        chosen = self.random.sample(self.backends, self.random.randint(1, len(self.backends)))
        floors = (f'{name} = "{self.random.choice(RELEASES)}"' for name in chosen)
        return [f"stable-abi = {{ {', '.join(floors)} }}"]

    def _kernel(self, backend: str, index: int) -> list[str]:
        folder = self.random.choice((*FOLDERS, f"{backend} files"))
        lines = [f"[kernel.{backend}-{index}]", f'backend = "{backend}"', 'depends = ["torch"]']
        lines += self._sources(folder, SUFFIXES.get(backend, ".cpp"), f"{backend}{index}")
        if backend == "cuda" and self._maybe(0.4):
            lines.append(f'cuda-minver = "{self.random.choice(TOOLKITS)}"')
        return lines

    def _sources(self, folder: str, suffix: str, stem: str) -> list[str]:
        """A source, what it includes in several ways, and the lines that name them."""
        listed = [f"{folder}/{stem}{suffix}"]
        includes = ["vector", f"{stem}.h", "common/types"]
        self.files[f"{folder}/{stem}.h"] = f'#include "detail/{stem}.inc"\n'
        self.files[f"{folder}/detail/{stem}.inc"] = f"  #  include <../{stem}_tail.cuh>\n"
        self.files[f"{folder}/{stem}_tail.cuh"] = f'#include "{stem}.h"\n'
        self.files[f"{folder}/{stem}.txt"] = "not a source\n"
        if self._maybe(0.5):
            listed.append(f"./{folder}//{stem}.h")
        if self._maybe(0.3):
            self.files["shared/common/types"] = "#pragma once\n#include MACRO\n"
            self.files["shared/common/macro.h"] = "#pragma once\n"
        self.files[listed[0]] = "".join(f'#include "{name}"\n' for name in includes)
        folders = [name for name in (folder, "shared", ".") if self._maybe(0.3)]
        known = [name for name in folders if any(p.startswith(f"{name}/") for p in self.files)]
        return [f"src = {_toml(listed)}", f"include = {_toml(known)}"]

    def _package(self) -> None:
        root = "tvm-ffi-ext" if self.framework == "tvm-ffi" else "torch-ext"
        package = f"{root}/{self.name.replace('-', '_')}"
        self.files |= {
            f"{package}/__init__.py": "__all__ = []\n",
            f"{package}/_ops.py": "# left over from another tool\n",
            f"{package}/layers/__init__.py": "",
            f"{package}/layers/_ops.py": "",
            f"{package}/table.json": "{}\n",
            f"{package}/device.cuh": "",
            f"{package}/py.typed": "",
            f"{package}/.hidden/module.py": "",
            f"{package}/.dotted.py": "",
            f"{package}/__pycache__/module.pyc": "",
        }


def _toml(texts: list[str]) -> str:
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"

"""Small source trees of CUTLASS, and a git that answers from them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.system.processes import ProcessResult

COMMIT = "5f2799953e11d723627c4d7e2f2c63008ab64b7a"
UNREACHABLE = "fatal: unable to access 'https://git.invalid/': Could not resolve host\n"


def members(version: str = "3.8.0") -> dict[str, bytes]:
    major, minor, patch = version.split(".")
    text = (
        "#pragma once\n"
        f"#define CUTLASS_MAJOR {major}\n# define  CUTLASS_MINOR {minor}\n"
        f"#define CUTLASS_PATCH {patch} \n#define CUTLASS_BUILD 0\n"
    )
    return {
        "include/cutlass/cutlass.h": b"#pragma once\n",
        "include/cutlass/version.h": text.encode(),
        "tools/util/include/cutlass/util/host_tensor.h": b"#pragma once\n",
    }


def make_tree(root: Path, version: str = "3.8.0") -> Path:
    for path, data in members(version).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def tree_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@dataclass
class FakeGit:
    """`git ls-remote`, `git clone` and `git rev-parse`. There is no pip."""

    tree: Path | None = None
    """What a clone is a copy of; without it the server cannot be reached."""
    tags: tuple[str, ...] = ()
    fails: str = UNREACHABLE
    code: int = 128
    calls: list[tuple[str, ...]] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)

    def run(self, argv, *, env=None, **_) -> ProcessResult:
        words = tuple(map(str, argv))
        if "git" not in words:
            return ProcessResult(words, 1, "no pip here", 0.1)
        self.calls.append(words)
        self.envs.append(env or {})
        if self.tree is None:
            return ProcessResult(words, self.code, self.fails, 0.1)
        return ProcessResult(words, 0, self._answer(words), 0.1)

    def _answer(self, words: tuple[str, ...]) -> str:
        if "ls-remote" in words:
            there = words[-1].removeprefix("refs/tags/") in self.tags
            return f"{COMMIT}\t{words[-1]}\n" if there else ""
        if "clone" in words:
            assert self.tree is not None
            shutil.copytree(self.tree, words[-1])
            return ""
        return f"{COMMIT}\n"

    @property
    def verbs(self) -> list[str]:
        known = ("ls-remote", "clone", "rev-parse")
        return [next(verb for verb in known if verb in call) for call in self.calls]

"""Torch's headers of the stable ABI for HIP, out of any build of Torch.

A Torch built for ROCm ships its headers translated by its own hipify (`cudaError_t` in
`torch/csrc/stable/macros.h` is `hipError_t` there, `USE_CUDA` is `USE_ROCM`); other builds ship
them as they are written. For those, the few headers that differ are translated the same way, into
a folder that goes before Torch's own.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.system.code_digest import code_digest
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.store import Recipe, Store
from kbuild.system.temporary import temporary_folder

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
    for path in (*_headers(torch / "include"), *_hipify(torch)):
        digest.update(f"{path.relative_to(torch)}\0".encode() + path.read_bytes() + b"\0")
    inputs = {"torch": digest.hexdigest(), "kbuild": code_digest(__file__, _SCRIPT)}
    return Recipe("torch-hip-headers", version.partition("+")[0], inputs)


def _headers(include: Path) -> Iterator[Path]:
    folders = (include / name for name in _FOLDERS)
    yield from sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def _hipify(torch: Path) -> list[Path]:
    return sorted((torch / "utils" / "hipify").glob("*.py"))


def _keep_changed(fresh: Path, include: Path, target: Path) -> None:
    for path in sorted(path for path in fresh.rglob("*") if path.is_file()):
        name = path.relative_to(fresh)
        before = include / name
        if not before.is_file() or path.read_bytes() != before.read_bytes():
            _copy(path, target / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)

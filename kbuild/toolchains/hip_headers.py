"""Torch's stable headers for HIP, out of any build of Torch.

A Torch built for ROCm ships its headers translated by its own hipify (`cudaError_t` in
`torch/csrc/stable/macros.h` is `hipError_t` there, `USE_CUDA` is `USE_ROCM`); other builds ship
them as they are written. For those, the few headers that differ are translated the same way, into
a folder that goes before Torch's own.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.fileset import sha256
from kbuild.run import Runner
from kbuild.store import Recipe, Store

_SCRIPT = Path(__file__).with_name("hipify_headers.py")
# Everything that sources on the stable ABI may include.
_FOLDERS = ("torch/csrc/stable", "torch/csrc/inductor/aoti_torch/c", "torch/headeronly")


def hip_headers(torch: Path, version: str, python: Path, store: Store, runner: Runner) -> Path:
    """The folder of translated headers, made when it is not in the store.

    Args:
        torch: the package's folder, with `include/` and `utils/hipify/`.
        version: Torch's, for the entry's name.
        python: runs hipify.
        store: kbuild's store.
        runner: starts Python.

    Raises:
        ToolchainError: hipify failed.
    """

    def make(root: Path) -> Mapping[str, Any]:
        _translate(torch, root, python, runner)
        return {"torch": str(torch)}

    return store.ensure(_recipe(torch, version), make).root


def _recipe(torch: Path, version: str) -> Recipe:
    headers = hashlib.sha256()
    for path in (*_headers(torch / "include"), *_hipify(torch)):
        headers.update(f"{path.relative_to(torch)}\0".encode() + path.read_bytes() + b"\0")
    inputs = {"torch": headers.hexdigest(), "script": sha256(_SCRIPT.read_bytes())}
    return Recipe("torch-hip-headers", version.partition("+")[0], inputs)


def _headers(include: Path) -> Iterator[Path]:
    found = (path for name in _FOLDERS for path in (include / name).rglob("*") if path.is_file())
    yield from sorted(found)


def _hipify(torch: Path) -> list[Path]:
    return sorted((torch / "utils" / "hipify").glob("*.py"))


def _translate(torch: Path, target: Path, python: Path, runner: Runner) -> None:
    include = torch / "include"
    with tempfile.TemporaryDirectory() as name:
        fresh = Path(name).resolve()
        for path in _headers(include):
            copy = fresh / path.relative_to(include)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        hipify = str(torch / "utils" / "hipify")
        done = runner.run((str(python), "-I", "-B", str(_SCRIPT), hipify, str(fresh)))
        if not done.ok:
            raise ToolchainError(f"Torch's hipify failed on its headers:\n{done.output.strip()}")
        _keep_changed(fresh, include, target)


def _keep_changed(fresh: Path, include: Path, target: Path) -> None:
    for path in _headers(fresh):
        name = path.relative_to(fresh)
        if path.read_bytes() != (include / name).read_bytes():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)

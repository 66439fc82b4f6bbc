"""Where compilers of Python DSLs and toolchains from wheels are installed for tests."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path

import pytest

from kbuild.errors import ToolchainError
from kbuild.runtime.processes import LocalRunner
from kbuild.toolchains.wheels.package_index import PackageIndex
from kbuild.toolchains.wheels.settings import pip_settings

MACHINE_CACHE = Path(os.environ.get("KBUILD_CACHE_DIR") or Path.home() / ".cache" / "kbuild")
"""The cache of this machine's kbuild; read before tests get caches of their own."""


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test session share."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def store_with(entry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of this machine's kbuild if it has the entry, or else one of this session."""
    own = MACHINE_CACHE / "store"
    if any(own.glob(f"{entry}-*")):
        return own
    folder = shared_folder(tmp_path_factory) / "store"
    folder.mkdir(exist_ok=True)
    return folder


def dsl_store(entry: str, distribution: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has a DSL's compiler, such as `triton-3.9.0`, or that a build installs it in.

    Skips the test where the compiler is not installed and cannot be fetched.
    """
    if (platform.machine(), platform.system()) != ("x86_64", "Linux"):
        pytest.skip("kernels in DSLs are compiled on x86_64 Linux")
    store = store_with(entry, tmp_path_factory)
    if store == MACHINE_CACHE / "store":
        return store
    try:
        with PackageIndex(pip_settings(LocalRunner())) as index:
            files = index.files(distribution)
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    version = entry.rpartition("-")[2]
    if all(str(file.version) != version for file in files):
        pytest.skip(f"the package index has no {distribution} {version}")
    return store


def cache_with_store(folder: Path, store: Path) -> Path:
    """A cache of its own in a folder, except for the store."""
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (folder / "store").symlink_to(store)
    return folder

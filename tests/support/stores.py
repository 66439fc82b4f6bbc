"""Caches of kbuild that tests share: compilers of Python DSLs, toolchains from wheels, objects."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from kbuild.system.errors import ToolchainError
from kbuild.system.files import FileSet, replace_atomically
from kbuild.system.processes import LocalRunner
from kbuild.system.readonly_tree import FolderInUseError
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.package_index import PackageIndex
from kbuild.toolchains.wheels.settings import pip_settings

MACHINE_CACHE = Path(os.environ.get("KBUILD_CACHE_DIR") or Path.home() / ".cache" / "kbuild")
"""The cache of this machine's kbuild; read before tests get caches of their own."""
TEST_CACHE = Path(os.environ.get("KBUILD_TEST_CACHE") or MACHINE_CACHE.with_name("kbuild-tests"))
"""Caches that outlive a run of the tests."""
LASTING_PARTS = ("objects", "images", "descriptions")
"""Parts of a cache whose keys cover all inputs by content."""
SHARED_PARTS = ("facts", "probes", "probe-files", "costs")
"""Parts about this machine and this kbuild, for one session."""
KEPT_LAUNCHERS = 200
"""How many libraries of launchers are kept."""
UNUSED_DAYS = 30
"""After how many days a toolchain that no test used is removed from there."""


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test session share."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@functools.cache
def lasting_folder() -> Path | None:
    """`TEST_CACHE`, if this user can write to it.

    kbuild limits the size of the objects in it.
    """
    try:
        (TEST_CACHE / "store").mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    with suppress(FolderInUseError):
        open_store(TEST_CACHE).prune(UNUSED_DAYS)
    return TEST_CACHE


def store_with(entry: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of this machine's kbuild if it has the entry, or else one for tests."""
    own = MACHINE_CACHE / "store"
    if any(own.glob(f"{entry}[-.]*")):
        return own
    folder = (lasting_folder() or shared_folder(tmp_path_factory)) / "store"
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


def shared_library(
    command: tuple[str, ...], target: Path, files: FileSet, places: tuple[Path, ...]
) -> None:
    """Make `target` with a command of g++, or take what an earlier run made of the same input.

    Args:
        command: compiles and links, but for `-o`.
        target: the library.
        files: what lies in its folder; an assembler may include any of them.
        places: folders that the command names, whose names do not matter.
    """
    maps = tuple(f"-ffile-prefix-map={place}=/{at}" for at, place in enumerate(places))
    command = (*command, *maps)
    lasting = lasting_folder()
    if lasting is None:
        return _compile((*command, "-o", str(target)))
    plain = "\0".join(command)
    for place in places:
        plain = plain.replace(str(place), "")
    key = hashlib.sha256(f"{_compile(('g++', '--version'))}\0{plain}\0{files.digest}".encode())
    key.update(_compile((*command, "-E", "-P")).encode())
    kept = lasting / "launchers" / f"{key.hexdigest()}.so"
    with suppress(FileNotFoundError):
        shutil.copyfile(kept, target)
        kept.touch()
        return None
    _compile((*command, "-o", str(target)))
    kept.parent.mkdir(exist_ok=True)
    replace_atomically(kept, target.read_bytes())
    for old in sorted(kept.parent.glob("*.so"), key=_modified)[:-KEPT_LAUNCHERS]:
        old.unlink(missing_ok=True)
    return None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _compile(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stderr[:4000]
    return done.stdout


def cache_with_store(folder: Path, store: Path) -> Path:
    """A cache of its own in a folder, except for the store."""
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (folder / "store").symlink_to(store)
    return folder


def warm_cache(folder: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with objects, images and answers of earlier builds; the rest of it is its own.

    For tests of what was built. Tests of the compilation itself use `cache_with_store`.
    """
    cache_with_store(folder, store)
    shared = shared_folder(tmp_path_factory)
    for name in LASTING_PARTS + SHARED_PARTS:
        part = ((lasting_folder() if name in LASTING_PARTS else None) or shared) / name
        part.mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (folder / name).symlink_to(part)
    return folder

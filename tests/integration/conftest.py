"""Real builds: copies of the examples in git repositories of their own, driven by the command."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from tests.support.command_project import ROOT, Bench
from tests.support.hub.fixture import HubBench, running_hub
from tests.support.stores import cache_with_store, shared_folder, store_with


@pytest.fixture(scope="session")
def need_torch() -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("kernels") is None:
        pytest.skip("needs torch and kernels: pip install 'kbuild[torch]'")
    if not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("needs a C++ compiler: apt install g++")


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bench]:
    """A fresh copy of one example, committed to git.

    With `kept=True`, objects that other such copies compiled are there already, and so are
    toolchains that were installed; everything else of the cache is its own.
    """
    objects = shared_folder(tmp_path_factory) / "objects"
    objects.mkdir(exist_ok=True)
    store = store_with("cuda-13.0", tmp_path_factory)

    def copy(name: str, *, kept: bool = False) -> Bench:
        folder = tmp_path_factory.mktemp(name)
        root = folder / name
        ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / "examples" / name, root, ignore=ignored)
        cache = folder / "cache"
        cache.mkdir()
        if kept:
            (cache_with_store(cache, store) / "objects").symlink_to(objects)
        bench = Bench(root, cache)
        bench.git("init", "-q")
        bench.git("add", "-A")
        bench.git("commit", "-qm", "example")
        return bench

    return copy


@pytest.fixture(scope="session")
def hip_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests that compile for ROCm, in whatever process: 67 MB are fetched once."""
    return shared_folder(tmp_path_factory) / "hip-cache"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubBench]:
    """A Hub of this test alone; see `tests/support/hub`."""
    try:  # not imported here: it reads its environment then
        found = Version(importlib.metadata.version("huggingface_hub"))
    except importlib.metadata.PackageNotFoundError:
        found = Version("0")
    if found < Version("2.3"):
        pytest.skip("needs uploads of kernels: pip install 'huggingface_hub>=2.3'")
    with running_hub(tmp_path) as bench:
        yield bench

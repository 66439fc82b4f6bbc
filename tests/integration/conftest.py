"""Real builds: copies of the examples in git repositories of their own, driven by the command."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from kbuild.toolchains.rocm import RocmInstallation
from tests.support.command_project import ROOT, CommandProject
from tests.support.hub.fixture import HubBench, running_hub
from tests.support.rocm import rocm_for_tests
from tests.support.stores import store_with, warm_cache


@pytest.fixture(scope="session")
def need_torch() -> None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("kernels") is None:
        pytest.skip("needs torch and kernels: pip install '.[torch]'")
    if not (shutil.which("c++") or shutil.which("g++")):
        pytest.skip("needs a C++ compiler: apt install g++")


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes a folder a cache that takes what earlier builds left; see `warm_cache`."""
    store = store_with("cuda-13.0", tmp_path_factory)
    return lambda folder: warm_cache(folder, store, tmp_path_factory)


@pytest.fixture(scope="session")
def example(
    tmp_path_factory: pytest.TempPathFactory, warm: Callable[[Path], Path]
) -> Callable[..., CommandProject]:
    """A fresh copy of one example, committed to git.

    With `kept=True`, its cache is warm.
    """

    def copy(name: str, *, kept: bool = False) -> CommandProject:
        folder = tmp_path_factory.mktemp(name)
        root = folder / name
        ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / "examples" / name, root, ignore=ignored)
        cache = folder / "cache"
        cache.mkdir()
        if kept:
            warm(cache)
        bench = CommandProject(root, cache)
        bench.commit()
        return bench

    return copy


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> RocmInstallation:
    """What tests compile for AMD GPUs with; they skip without it."""
    return rocm_for_tests(tmp_path_factory.mktemp("rocm") / "rocm")


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

"""One extension and one fake driver for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from launched import Driver, extension, files_of
from rich import TABLES, rich


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    if shutil.which("g++") is None or shutil.which("gcc") is None:
        pytest.skip("no g++")
    return Driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def loaded(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ops of the rich extension."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("rich")
    files = files_of("rich", rich(), TABLES, module=True, control=True)
    path = extension(files, folder, "_rich_tests")
    torch.ops.load_library(str(path))
    return SimpleNamespace(ops=torch.ops._rich_tests, path=path)


@pytest.fixture
def ops(loaded: Any, driver: Driver) -> Iterator[Any]:
    driver.said()
    yield loaded.ops
    driver.library.fake_fail(0)
    driver.library.fake_quiet(0)
    driver.library.fake_forget()
    driver.torch.fake_use_stream(0, 0)

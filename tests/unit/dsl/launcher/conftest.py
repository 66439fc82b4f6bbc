"""One extension for each host and one fake driver for all tests of this folder."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.launcher.functions import Functions, library, without_fallback
from tests.support.launcher.launched import Driver, extension, files_of
from tests.support.launcher.rich import TABLES, rich

HOSTS = ["torch"]
if importlib.util.find_spec("tvm_ffi"):
    HOSTS.append("tvm-ffi")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    if shutil.which("g++") is None or shutil.which("gcc") is None:
        pytest.skip("no g++")
    return Driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def loaded(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Torch's ops of the rich extension."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("rich")
    files = files_of("rich", rich(), TABLES, module=True, control=True)
    path = extension(files, folder, "_rich_tests")
    torch.ops.load_library(str(path))
    return SimpleNamespace(ops=torch.ops._rich_tests, path=path)


@pytest.fixture(scope="session")
def functions(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Functions:
    """The same launchers as functions of TVM-FFI; an op with a fallback has none."""
    pytest.importorskip("tvm_ffi")
    ops = without_fallback(rich())
    files = files_of("rich", ops, TABLES, control=True, framework="tvm-ffi")
    path = library(files, tmp_path_factory.mktemp("rich-tvm-ffi"), "rich")
    return Functions(path, [op.spec for op in ops])


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    """What calls the ops."""
    return str(request.param)


@pytest.fixture
def ops(host: str, driver: Driver, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The ops of the rich extension, whoever calls them."""
    if host == "torch":
        found = request.getfixturevalue("loaded").ops
    else:
        found = request.getfixturevalue("functions")
    driver.said()
    yield found
    driver.library.fake_fail(0)
    driver.library.fake_quiet(0)
    driver.library.fake_forget()
    driver.use_stream(0, 0)
    driver.use_stream(1, 0)

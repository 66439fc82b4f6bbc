"""Every test starts from the same surroundings, whatever shell or CI it runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

UNSET = (
    *("CI", "GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
    *("KBUILD_TRACEBACK", "LOCAL_KERNELS", "CXX", "CXXFLAGS", "LDFLAGS"),
    *("KBUILD_NIX_ARGS", "IN_NIX_SHELL", "NIX_BUILD_TOP", "NIX_CONFIG", "NIX_REMOTE"),
)


TOGETHER = {"test_rocm": "hip", "test_rocm_full_abi": "hip"}
"""Files whose tests share what is fetched or made once per process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (`pytest -n`), the tests of one file stay in one of them."""
    for item in items:
        name = item.path.stem
        item.add_marker(pytest.mark.xdist_group(TOGETHER.get(name, name)))


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kbuild's cache folder of this test session."""
    return tmp_path_factory.mktemp("kbuild-cache")


@pytest.fixture(autouse=True)
def surroundings(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache_folder))
    monkeypatch.setenv("COLUMNS", "100")
    # The examples have flakes; whether Nix is installed must not decide what a test builds with.
    monkeypatch.setenv("KBUILD_DRIVER", "local")

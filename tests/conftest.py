"""Every test starts from the same surroundings, whatever shell or CI it runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

UNSET = (
    *("CI", "GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
    *("KBUILD_TRACEBACK", "LOCAL_KERNELS", "CXX", "CXXFLAGS", "LDFLAGS"),
    *("KBUILD_NIX_ARGS", "IN_NIX_SHELL", "NIX_BUILD_TOP", "NIX_CONFIG", "NIX_REMOTE"),
)


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

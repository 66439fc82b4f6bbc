"""Every test starts from the same surroundings, whatever shell or CI it runs in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kbuild.system.processes import LocalRunner
from kbuild.toolchains.wheels.settings import pip_settings

pytest_plugins = ["tests.support.command_line", "tests.support.fixtures"]
_REAL_BUILDS = Path(__file__).parent / "integration"
UNSET = (
    *("CI", "GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
    *("KBUILD_TRACEBACK", "LOCAL_KERNELS", "CXX", "CXXFLAGS", "LDFLAGS"),
    *("NIX_CONFIG", "NIX_REMOTE"),
)

# How fast a machine is, and what else it does, must not decide whether a test passes.
settings.register_profile("kbuild", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kbuild")

# A shell starts what runs in its background with SIGINT ignored, and every program inherits that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one more than there are processors, since many tests wait for other programs."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Start files in the order of their names: pytest-xdist begins with those of many tests.

    The slowest files have few tests, and are in `tests/integration`, far from the end.
    """
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before pytest reads `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark real builds as `full`; README's command runs those of them that are also `quick`."""
    for item in items:
        if item.path.is_relative_to(_REAL_BUILDS):
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kbuild's cache folder of this test session."""
    return tmp_path_factory.mktemp("kbuild-cache")


@pytest.fixture(scope="session", autouse=True)
def configuration_of_git_and_pip() -> Iterator[None]:
    """What this machine's git and pip are set up for, but for where packages come from.

    For whole sessions, since fixtures of modules start programs as well.
    """
    reaching = ("GIT_SSL", "GIT_SSH", "GIT_PROXY")
    with pytest.MonkeyPatch.context() as patch:
        index = pip_settings(LocalRunner(), os.environ).variables
        for name in list(os.environ):
            is_git = name.startswith("GIT_") and not name.startswith(reaching)
            if is_git or name.startswith("PIP_"):
                patch.delenv(name)
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for name, value in (own | index).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def surroundings(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache_folder))
    monkeypatch.setenv("COLUMNS", "100")
    # The examples have flakes; whether Nix is installed must not decide what a test builds with.

"""Who compiles a ROCm variant, and against which Torch: the whole order, as commands ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import open_torch_wheels, toolchain_source
from kbuild.plan.plan import Requirements
from kbuild.project.variant import System
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.fake_machine import FakeRunner, fake_rocm, fake_torch, full, machine, stable
from tests.support.torch_wheels import torch_wheel

SYSTEM = "x86_64-linux"


class Machine:
    """A Torch for the CPU, and what a test adds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        host, self.runner = machine(folder, fake_torch(folder))
        self.python = host.python
        self.cache = folder / "cache"
        monkeypatch.setenv("ROCM_PATH", str(folder / "none"))

    def has_rocm(self, version: str = "7.2.1") -> None:
        self.monkeypatch.setenv("ROCM_PATH", str(fake_rocm(self.folder / "rocm", version)))

    def tools(self, *wheels: Path, name: str = "auto"):
        runner: FakeRunner = self.runner
        given = open_torch_wheels(wheels, self.cache, runner)
        options = BuildOptions(toolchain=name, python=self.python)
        return toolchain_source(options, Services(runner, Ui(), self.cache), given)

    def made(self, requires: Requirements, *wheels: Path, name: str = "auto") -> tuple[str, str]:
        """Source and Torch."""
        toolchain = self.tools(*wheels, name=name).provision(requires)
        return toolchain.source, dict(toolchain.versions)["torch"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Machine:
    for module in ("toolchains.host", "toolchains.torch_wheel", "pipeline.toolchains"):
        monkeypatch.setattr(f"kbuild.{module}.host_system", lambda: System.parse(SYSTEM))
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def wheel(tmp_path) -> Path:
    return torch_wheel(tmp_path / "wheels", "2.13.0+rocm7.2")


def test_nothing_is_skipped_with_words(here):
    reason = here.tools().refuses(full())
    assert "needs ROCm 7.2; " in reason
    assert "does not say which release it is" in reason


def test_an_installed_rocm_with_the_torch_that_a_variant_needs(here, wheel):
    here.has_rocm()
    assert here.made(full(), wheel) == ("rocm", "2.13.0+rocm7.2")
    assert here.made(stable()) == ("rocm", "2.13.0+cpu")


def test_a_wheel_for_another_rocm_changes_nothing(here, tmp_path):
    here.has_rocm()
    other = torch_wheel(tmp_path / "wheels", "2.13.0+rocm7.1")
    assert "built for ROCm 7.2" in here.tools(other).refuses(full())


def test_an_installed_rocm_of_another_release_is_passed_over(here, wheel):
    here.has_rocm("6.4.1")
    assert "has 6.4.1" in here.tools(wheel).refuses(full())


def test_a_real_rocm_needs_a_torch_for_it(here):
    here.has_rocm()
    reason = here.tools().refuses(full())
    assert "needs Torch 2.13 built for ROCm 7.2, such as a wheel given by --torch-wheel" in reason

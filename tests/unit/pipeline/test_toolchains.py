"""Who compiles a ROCm variant, and against which Torch: the whole order, as commands ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import open_torch_wheels, toolchain_source
from kbuild.plan.plan import Requirements
from kbuild.plugins.debian.debian_hip.installation import pins
from kbuild.project.variant import System
from kbuild.system.services import Services
from kbuild.system.store import open_store
from kbuild.system.ui import Ui
from tests.support.fake_machine import FakeRunner, fake_rocm, fake_torch, full, machine, stable
from tests.support.torch_wheels import torch_wheel

SYSTEM = "x86_64-linux"


class Machine:
    """A Torch for the CPU, Debian's packages in the store, and what a test adds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        host, self.runner = machine(folder, fake_torch(folder))
        self.python = host.python
        self.cache = folder / "cache"
        packages = pins().recipe
        open_store(self.cache).ensure(packages, lambda root: {"sources": [fake_rocm(root).name]})
        monkeypatch.setenv("ROCM_PATH", str(folder / "none"))
        monkeypatch.delenv("KBUILD_EXPERIMENTAL", raising=False)

    def has_rocm(self, version: str = "7.2.1") -> None:
        self.monkeypatch.setenv("ROCM_PATH", str(fake_rocm(self.folder / "rocm", version)))

    def opts_in(self) -> None:
        self.monkeypatch.setenv("KBUILD_EXPERIMENTAL", "debian-hip")

    def tools(self, *wheels: Path, name: str = "auto"):
        runner: FakeRunner = self.runner
        given = open_torch_wheels(wheels, self.cache, runner)
        options = BuildOptions(toolchain=name, python=self.python)
        return toolchain_source(options, Services(runner, Ui(), self.cache), given)

    def made(self, requires: Requirements, *wheels: Path, name: str = "auto") -> tuple[str, str]:
        """Source and Torch; headers that are translated are marked."""
        toolchain = self.tools(*wheels, name=name).provision(requires)
        versions = dict(toolchain.versions)
        mark = " translated" if "torch-headers" in versions else ""
        return toolchain.source, versions["torch"] + mark


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


def test_debians_packages_when_opted_in(here):
    here.opts_in()
    assert here.made(full()) == ("debian-hip", "2.13.0+cpu translated")
    assert here.made(stable()) == ("debian-hip", "2.13.0+cpu")


def test_a_wheel_for_rocm_before_translated_headers(here, wheel):
    here.opts_in()
    assert here.made(full(), wheel) == ("debian-hip", "2.13.0+rocm7.2")


def test_a_wheel_for_another_rocm_changes_nothing(here, tmp_path):
    here.opts_in()
    other = torch_wheel(tmp_path / "wheels", "2.13.0+rocm7.1")
    assert here.made(full(), other) == ("debian-hip", "2.13.0+cpu translated")


def test_a_real_rocm_before_debians_packages(here, wheel):
    here.opts_in()
    here.has_rocm()
    assert here.made(full(), wheel) == ("rocm", "2.13.0+rocm7.2")
    assert here.made(stable()) == ("rocm", "2.13.0+cpu")


def test_a_real_rocm_of_another_release_is_passed_over(here, wheel):
    here.opts_in()
    here.has_rocm("6.4.1")
    assert here.made(full(), wheel) == ("debian-hip", "2.13.0+rocm7.2")


def test_the_option_before_everything(here, wheel):
    here.has_rocm()
    assert here.made(full(), wheel, name="debian-hip") == ("debian-hip", "2.13.0+rocm7.2")


def test_a_real_rocm_needs_a_torch_for_it(here):
    here.has_rocm()
    reason = here.tools().refuses(full())
    assert "needs Torch 2.13 built for ROCm 7.2, such as a wheel given by --torch-wheel" in reason

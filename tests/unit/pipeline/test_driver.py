"""`--driver nix`: the options that it refuses, and a Nix that cannot be used."""

from __future__ import annotations

import io

import pytest

from kbuild.pipeline.diagnosis import nix_items
from kbuild.pipeline.nix_build import open_flake
from kbuild.project.variant import System
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.nix.recorded import PlayedNix, program
from tests.support.projects import BINDING, kernel, write_project

FLAKE = '{ inputs.kbuild.url = "github:kbuild/kbuild"; outputs = _: { }; }\n'


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr("kbuild.project.variant.host_system", lambda: System.parse("x86_64-linux"))
    folder = write_project(tmp_path / "project", BINDING, kernel("cpu"))
    (folder / "flake.nix").write_text(FLAKE)
    program(tmp_path, monkeypatch)
    return folder


@pytest.fixture
def services(tmp_path):
    runner = PlayedNix("2.34", tmp_path)
    return Services(runner, Ui(out=io.StringIO(), err=io.StringIO()), tmp_path / "cache")


def test_the_driver_is_told(root, services):
    open_flake(root, ("--max-jobs", "2", "--option", "cores", "1"), services)
    assert "driver: nix 2.34.3, sandbox on" in services.ui._err.getvalue()
    (shown,) = (command for command in services.runner.asked if "show-config" in command)
    assert shown[-3:] == ("--option", "cores", "1")


@pytest.mark.parametrize(
    "words",
    [
        ("--toolchain", "host"), ("--python", "python3"),
        ("--with-source", "a=b"), ("--arch", "9.0"), ("--dev",), ("--jobs", "2"),
        ("--memory", "4G"), ("--time-budget", "1h"), ("--report",), ("--max-file-size", "1G"),
        ("--unique-id", "x"), ("--kernel-sha", "0" * 40), ("--executor", "x"),
    ],
)  # fmt: skip
def test_options_of_this_machines_builds(kbuild, root, words):
    answer = kbuild("build", root, "--driver", "nix", *words)
    assert answer.code == 2
    assert f"{words[0]} does not work with --driver nix" in answer.err


def test_arguments_for_nix_need_nix(kbuild, root):
    answer = kbuild("build", root, "--", "--max-jobs", "2")
    assert (answer.code, "add --driver nix" in answer.err) == (2, True)


class TestDoctor:
    def test_one_without(self, root, services):
        services.runner.settings = {"sandbox": False}
        services.runner.namespaces = False
        _, sandbox = nix_items(services.cache, services.runner)
        assert sandbox.state == "optional"
        assert sandbox.details.startswith("off, no user namespaces")
        assert "sandbox = true" in sandbox.mend

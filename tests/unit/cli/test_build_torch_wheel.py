"""`--torch-wheel` from the command line, relative to where it was typed."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.support.projects import BINDING, kernel, write_project
from tests.support.torch_wheels import torch_wheel

pytestmark = pytest.mark.skipif(
    (platform.machine(), platform.system()) != ("x86_64", "Linux"), reason="wheels for x86_64 Linux"
)
CPU = ("--variant", "torch213-*-cpu-x86_64-linux")


@pytest.fixture
def project(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(here / "cache"))
    return write_project(here / "project", BINDING, kernel("cpu"))


def test_the_plan_names_the_wheel(kbuild, project, here):
    torch_wheel(here, "2.13.0+cpu")
    (name,) = (path.name for path in here.glob("*.whl"))
    answer = kbuild("plan", "project", *CPU, "--torch-wheel", name, "--json")
    assert answer.code == 0
    (plan,) = answer.json
    versions = dict(plan["toolchain"]["versions"])
    assert versions["torch"] == "2.13.0+cpu"
    assert versions["torch-wheel"].startswith(f"{name} sha256:")


@pytest.mark.parametrize("command", ["plan", "build"])
def test_a_wheel_for_no_chosen_variant_is_an_error(kbuild, project, here, command):
    name = torch_wheel(here, "2.13.0+cu126").name
    answer = kbuild(command, "project", *CPU, "--torch-wheel", name)
    assert answer.code == 2
    assert f"{name} is Torch 2.13 for cuda 12.6" in answer.err
    assert "torch213-cxx11-cpu-x86_64-linux" in answer.err


def test_variants_are_listed_with_it(kbuild, project, here):
    name = torch_wheel(here, "2.12.0+cpu").name
    asked = ("--variant", "torch212-*-cpu-x86_64-linux", "--toolchain", "host", "--json")
    (with_it,) = kbuild("list-variants", "project", *asked, "--torch-wheel", name).json
    assert with_it["buildable"]


def test_a_missing_file_is_an_error(kbuild, project, here):
    answer = kbuild("plan", "project", *CPU, "--torch-wheel", "none.whl")
    assert answer.code == 4
    assert f"`{here / 'none.whl'}` is not a file" in answer.err

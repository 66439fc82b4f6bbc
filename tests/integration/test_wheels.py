"""CUDA and Torch from the configured package index, to a CUDA extension. Fetches 120 MB."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.wheels.package_index import PackageIndex
from kbuild.toolchains.wheels.settings import pip_settings
from tests.support.command_project import CommandProject
from tests.support.tiny_project import write_tiny

VARIANT = "torch214-cxx11-cu130-x86_64-linux"
BUILD = ("--toolchain", "wheels", "--variant", VARIANT, "--arch", "9.0")
pytestmark = [pytest.mark.network, pytest.mark.compile]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    if (platform.machine(), platform.system()) != ("x86_64", "Linux"):
        pytest.skip("toolchains from wheels are for x86_64 Linux")
    if not shutil.which("c++"):
        pytest.skip("needs a C++ compiler: apt install g++")
    try:
        with PackageIndex(pip_settings(LocalRunner())) as index:
            found = index.files("nvidia-cuda-nvcc")
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    if not found:
        pytest.skip("the package index has no nvidia-cuda-nvcc")
    return write_tiny(tmp_path_factory.mktemp("wheels"), "cuda")


@pytest.mark.quick
def test_cuda_extension_from_nothing(tiny: CommandProject) -> None:
    """One architecture is enough here."""
    built = tiny.built(*BUILD)
    assert built["status"] == "built"
    (extension,) = Path(built["path"]).glob("*.abi3.so")
    with extension.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
    assert needed >= {
        "libtorch.so",
        "libtorch_cpu.so",
        "libtorch_cuda.so",
        "libc10.so",
        "libc10_cuda.so",
        "libcudart.so.13",
    }


@pytest.mark.quick
def test_what_was_installed_is_whole(tiny: CommandProject) -> None:
    answer = json.loads(tiny.kbuild("toolchain", "list", "--json").stdout)
    names = [entry["name"].rpartition("-")[0] for entry in answer["installed"]]
    assert [name.split("-")[0] for name in names] == ["cuda", "manylinux_2_28", "torch"]
    assert json.loads(tiny.kbuild("toolchain", "verify", "--json").stdout)["ok"]


def test_cuda_is_reproducible(tiny: CommandProject) -> None:
    tiny.built(*BUILD)  # of an earlier test, if that was selected
    (outcome,) = json.loads(tiny.kbuild("reproduce", "--json").stdout)
    assert (outcome["variant"], outcome["status"]) == (VARIANT, "same")

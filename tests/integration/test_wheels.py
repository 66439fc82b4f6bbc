"""CUDA and Torch from the configured package index, to a CUDA extension. Fetches 120 MB."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from integration_bench import ROOT

from kbuild.build.compile import Compilation
from kbuild.build.workspace import Workspace
from kbuild.errors import ToolchainError
from kbuild.matrix.selection import variants
from kbuild.plan import VariantPlan
from kbuild.planning import make_plans
from kbuild.project import open_project
from kbuild.run import LocalRunner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains.wheels import Wheels
from kbuild.toolchains.wheels.index import Index
from kbuild.toolchains.wheels.settings import pip_settings

VARIANT = "torch214-cxx11-cu130-x86_64-linux"
pytestmark = [pytest.mark.network, pytest.mark.compile]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    if (platform.machine(), platform.system()) != ("x86_64", "Linux"):
        pytest.skip("toolchains from wheels are for x86_64 Linux")
    if not shutil.which("c++"):
        pytest.skip("needs a C++ compiler: apt install g++")
    runner = LocalRunner()
    try:
        with Index(pip_settings(runner)) as index:
            found = index.files("nvidia-cuda-nvcc")
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    if not found:
        pytest.skip("the package index has no nvidia-cuda-nvcc")
    return Wheels(runner, tmp_path_factory.mktemp("cache"))


def plan_of(project: Path) -> VariantPlan:
    """One architecture is enough here."""
    build_file = project / "build.toml"
    text = build_file.read_text()
    head = 'backend = "cuda"\n'
    build_file.write_text(text.replace(head, f'{head}cuda-capabilities = ["9.0"]\n'))
    opened = open_project(project)
    choice = next(choice for choice in variants(opened) if str(choice.variant) == VARIANT)
    (made,) = make_plans(opened, [choice], SourceTree(project), LocalRunner())
    assert made.archs == ("9.0",)
    return made


def test_cuda_extension_from_nothing(wheels: Wheels, tmp_path: Path) -> None:
    project = tmp_path / "relu"
    ignored = shutil.ignore_patterns("build", ".kbuild")
    shutil.copytree(ROOT / "examples" / "relu", project, ignore=ignored)
    made = plan_of(project)
    assert wheels.refuses(made.requires) is None
    toolchain = wheels.provision(made.requires)
    space = Workspace(project, VARIANT)
    with space.locked():
        staged = Compilation(made, toolchain, space, LocalRunner(), 1, lambda *_: None).run()
    with (staged.folder / f"{made.ops_name}.abi3.so").open("rb") as file:
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


def test_installed_files_are_as_they_were(wheels: Wheels) -> None:
    entries = wheels.store.entries()
    assert all(entry.differences() == () for entry in entries)

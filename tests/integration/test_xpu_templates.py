"""The XPU sources of a new project parse with the headers of SYCL and of the framework.

No wheel has a SYCL compiler, so the host's compiler checks the types. Fetches 14 MB.
"""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.generate.project import generate
from kbuild.plan.plan import BINDING, Component, VariantPlan
from kbuild.plan.project import open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Identity
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Recipe, open_store
from kbuild.toolchains.wheels.frameworks import TVM_FFI_INCLUDE_FOLDER, torch_include_folders
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import LockedWheel
from tests.support.command_project import CommandProject, run
from tests.support.projects import plan_variant, scaffold_pairs
from tests.support.stores import cache_with_store, store_with

SYCL = LockedWheel(
    "intel_sycl_rt-2026.1.2-py2.py3-none-manylinux_2_28_x86_64.whl",
    "9f4c9aff11177a29ff81bcecffd47e43b1edf54b766f97ed1dac13a820b649e6",
    134125494,
    "8b6215eed8eae786fe25ab62ec09a26c369041b4b55629f66724792f3a3b4646",
)
MACROS = (
    "SYCL_LANGUAGE_VERSION=202012L",  # SYCL 2020, section 5.9
    "SYCL2020_DISABLE_DEPRECATION_WARNINGS",  # g++ takes no attribute where [[deprecated]] stands
)
GENERATED_BY_TORCH = {
    "c10/xpu/impl/xpu_cmake_macros.h": "#pragma once\n#define C10_XPU_BUILD_SHARED_LIBS\n"
}
"""Headers that only Torch's own build for XPU has."""
PROJECTS = [
    pytest.param(pair.framework, id=pair.framework)
    for pair in scaffold_pairs()
    if not pair.language and "xpu" in pair.compiled
]

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler: apt install g++"),
    pytest.mark.skipif(
        (platform.machine(), sys.platform) != ("x86_64", "linux"), reason="SYCL's wheel is for it"
    ),
]


@pytest.fixture(scope="module")
def installer(tmp_path_factory: pytest.TempPathFactory) -> WheelInstaller:
    store = store_with("sycl-headers", tmp_path_factory)
    cache = cache_with_store(tmp_path_factory.mktemp("xpu") / "cache", store)
    return WheelInstaller(LocalRunner(), open_store(cache))


@pytest.fixture(scope="module")
def sycl(installer: WheelInstaller) -> Path:
    """The folder of SYCL's headers."""
    start = f"{SYCL.filename.split('-py2')[0]}.data/data/"

    def destination(name: str) -> str | None:
        return name.removeprefix(start) if name.startswith(f"{start}include/") else None

    def make(root: Path) -> dict[str, object]:
        with installer.fetcher() as fetcher:
            return {"sources": [fetcher.unpack((SYCL,), root, destination).to_json()]}

    recipe = Recipe("sycl-headers", SYCL.version, {"wheel": SYCL.sha256})
    try:
        return installer.ensure(recipe, make).root / "include"
    except ToolchainError as error:
        pytest.skip(f"SYCL's headers cannot be fetched: {error.message}")


def new_plan(framework: str, folder: Path) -> VariantPlan:
    """The plan of a new project's XPU variant for the newest Torch."""
    options = ("--framework", framework, "--backends", "xpu", "--no-git")
    CommandProject(folder, folder / "cache").kbuild("init", "--name", "org/demo", *options)
    project = open_project(folder / "demo")
    choices = select_variants(project, Selection(backends=("xpu",)))
    newest = max(choices, key=lambda choice: choice.torch.parts if choice.torch else ())
    return plan_variant(project, newest, Identity(unique_id="x", commit=None, dirty=False))


def framework_headers(plan: VariantPlan, installer: WheelInstaller) -> tuple[Path, ...]:
    requires = plan.requires
    if requires.tvm_ffi:
        return (installer.tvm_ffi(requires.tvm_ffi).root / TVM_FFI_INCLUDE_FOLDER,)
    assert requires.torch
    entry = installer.torch(requires.torch, exact=requires.torch_exact, for_device=False)
    return torch_include_folders(entry.root)


def include_folders(plan: VariantPlan, part: Component, *roots: Path) -> Iterator[str]:
    package = (FRAMEWORKS.get(plan.framework).package_root,) if part.name == BINDING else ()
    for name in (*package, *part.include):
        yield from (f"-I{root / name}" for root in roots)


@pytest.mark.parametrize("framework", PROJECTS)
def test_types_are_right(
    framework: str, installer: WheelInstaller, sycl: Path, tmp_path: Path
) -> None:
    plan = new_plan(framework, tmp_path)
    generated, missing = tmp_path / "generated", tmp_path / "missing"
    generate(plan).write(generated)
    for name, text in GENERATED_BY_TORCH.items():
        (missing / name).parent.mkdir(parents=True)
        (missing / name).write_text(text)
    python = Path(sysconfig.get_path("include"))
    system = (python, *framework_headers(plan, installer), sycl, missing)
    parsed = set()
    for part in plan.components:
        macros = (*plan.definitions, *part.definitions, *MACROS)
        options = (
            *("-fsyntax-only", "-w", f"-std=gnu++{plan.cxx_standard}"),
            *(f"-D{macro}" for macro in macros),
            *include_folders(plan, part, tmp_path / "demo", generated),
            *(word for folder in system for word in ("-isystem", str(folder))),
        )
        for source in part.compiled:
            assert source.language == "CXX"
            done = run(("c++", *options, source.path), cwd=tmp_path / "demo")
            assert done.returncode == 0, done.stderr[:4000]
            parsed.add(source.path)
    assert BACKENDS.get("xpu").define in plan.definitions
    assert "demo_xpu/demo_xpu.cpp" in parsed
    assert len(parsed) == 2

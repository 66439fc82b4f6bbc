"""A CPU kernel with CUTLASS's host headers: fetched once, compiled, loaded. Fetches 5 MB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.wheels.package_index import PackageIndex
from kbuild.toolchains.wheels.settings import pip_settings
from tests.support.command_project import CommandProject, write_files

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

BUILD = """\
[general]
name = "major"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.major]
backend = "cpu"
depends = ["cutlass_3_8"]
src = ["src/major.cpp"]
"""
BINDING = """\
#include <torch/library.h>

#include "registration.h"

long major(long number);

namespace {
int64_t major_op(int64_t number) { return major(number); }
} // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("major(int number) -> int", &major_op); }

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
KERNEL = """\
#include <cutlass/coord.h>
#include <cutlass/version.h>

#if CUTLASS_MAJOR != 3 || CUTLASS_MINOR != 8
#error "not the CUTLASS that build.toml asks for"
#endif

long major(long number) {
  cutlass::Coord<2, long> both = cutlass::make_Coord(number, long(cutlass::getVersionMajor()));
  return both.sum();
}
"""
PACKAGE = """\
from ._ops import ops

__all__ = ["major"]


def major(number: int) -> int:
    return ops.major(number)
"""
LOAD = """
from pathlib import Path
from kernels import get_local_kernel
print(get_local_kernel(Path({path!r}), backend="cpu").major(4))
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    root = tmp_path_factory.mktemp("headers") / "major"
    files = {
        "build.toml": BUILD,
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/major/__init__.py": PACKAGE,
        "src/major.cpp": KERNEL,
    }
    write_files(root, files)
    (root.parent / "cache").mkdir()
    return CommandProject(root, root.parent / "cache")


def need_wheel(project: str) -> None:
    try:
        with PackageIndex(pip_settings(LocalRunner())) as index:
            found = index.files(project)
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    if not found:
        pytest.skip(f"the package index has no {project}")


@pytest.mark.network
def test_a_kernel_with_headers_of_cutlass(bench: CommandProject) -> None:
    need_wheel("nvidia-cutlass")
    planned = bench.kbuild("plan", "--json", "--variant", "*-cpu-*").stdout
    used = [made["toolchain"]["versions"] for made in json.loads(planned) if made["toolchain"]]
    assert "nvidia-cutlass 3.8.0.0 of the package index" in dict(used[0])["cutlass_3_8"]
    assert not list((bench.cache / "store").glob("source-*"))
    entry = bench.built()
    assert entry["status"] == "built"
    assert bench.python(LOAD.format(path=str(bench.root / "build"))).strip() == "7"
    (library,) = Path(entry["path"]).glob("*.so")
    assert str(bench.cache).encode() not in library.read_bytes()
    assert bench.built()["status"] == "up-to-date"


@pytest.mark.quick
def test_headers_out_of_reach(bench: CommandProject, tmp_path: Path) -> None:
    env = {
        "KBUILD_CACHE_DIR": str(tmp_path / "empty"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "GIT_ALLOW_PROTOCOL": "none",
    }
    done = bench.kbuild("build", env=env, expect=4)
    assert "the headers of CUTLASS 3.8.0 (`cutlass_3_8`) were not found" in done.stderr
    assert "kbuild build --with-source cutlass_3_8=" in done.stderr
    assert "git tag v3.8.0: fatal: transport 'https' not allowed" in done.stderr

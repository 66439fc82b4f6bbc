"""`kbuild migrate`: the new projects build, and compute what the packages did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, CommandProject, run

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(name="shift", ext_modules=[CppExtension("shift", ["shift.cpp"])],
      cmdclass={"build_ext": BuildExtension})
"""
SOURCE = """
#include <torch/extension.h>

static int calls = 0;

torch::Tensor shift(const torch::Tensor &x, int by, float factor) {
  calls++;
  return x * factor + by;
}
void shift_(torch::Tensor &x, int by) { x.add_(by); }
int count() { return calls; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("shift", &shift, py::arg("x"), py::arg("by") = 1, py::arg("factor") = 2.0);
  m.def("shift_", &shift_);
  m.def("count", &count);
}
"""
USE = """
import torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")
x = torch.ones(2, 3)
{check}
"""


def migrate(package: Path, folder: Path, check: str) -> None:
    folder.mkdir(exist_ok=True)
    bench = CommandProject(folder, folder.parent / "cache")
    bench.kbuild("migrate", str(package), ".", "--name", "org/demo", "--no-git",
                 "--license", "MIT")  # fmt: skip
    bench.kbuild("check-config", ".")
    assert bench.built("--backend", "cpu", "--dev")["status"] == "built"
    code = USE.format(path=str(folder), check=check)
    done = run((sys.executable, "-W", "ignore", "-c", code), cwd=folder.parent)
    assert done.returncode == 0, done.stderr


def test_setup_with_pybind(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "setup.py").write_text(SETUP)
    (package / "shift.cpp").write_text(SOURCE)
    check = """
assert torch.equal(kernel.shift(x), x * 2 + 1) and torch.equal(kernel.shift(x, by=3), x * 2 + 3)
kernel.shift_(x, 4)
assert torch.equal(x, torch.full((2, 3), 5.0)) and kernel.count() == 2
"""
    migrate(package, tmp_path / "project", check)


@pytest.mark.quick
def test_cmake_with_torch_library(tmp_path: Path) -> None:
    package = ROOT / "tests" / "support" / "foreign" / "cmake"
    check = "assert torch.equal(kernel.row_sum(x), torch.full((2,), 3.0))"
    migrate(package, tmp_path / "project", check)


SEVERAL = {
    "setup.py": """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(name="several", license="MIT", packages=["several"], cmdclass={"build_ext": BuildExtension},
      ext_modules=[CppExtension("several._A", ["csrc/a.cpp", "csrc/more.cpp", "csrc/impl.cpp"]),
                   CppExtension("several._B", ["csrc/b.cpp", "csrc/impl.cpp"], ["csrc"]),
                   CppExtension("several._C", ["csrc/c.cpp"], define_macros=[("BY", "4")])])
""",
    "several/__init__.py": """
import importlib.machinery
import os

import torch

for library in ("_A", "_B"):
    spec = importlib.machinery.PathFinder().find_spec(library, [os.path.dirname(__file__)])
    if spec is None:
        raise ImportError(library)
    torch.ops.load_library(spec.origin)

from several._C import scaled

one, two, three = torch.ops.several.one, torch.ops.several.two, torch.ops.several.three


@torch.library.register_fake("several::two")
def _(x):
    return torch.empty_like(x)
""",
    "csrc/ops.h": """#pragma once
#include <ATen/ATen.h>
at::Tensor add(const at::Tensor &, int64_t);
""",
    "csrc/impl.cpp": """#include "ops.h"
at::Tensor add(const at::Tensor &x, int64_t by) { return x + by; }
""",
    "csrc/a.cpp": """#include <torch/library.h>
#include "ops.h"
static at::Tensor one(const at::Tensor &x) { return add(x, 1); }
TORCH_LIBRARY_FRAGMENT(several, m) { m.def("several::one(Tensor x) -> Tensor", &one); }
""",
    "csrc/more.cpp": """#include <torch/library.h>
#include "ops.h"
static at::Tensor two(const at::Tensor &x) { return add(x, 2); }
TORCH_LIBRARY_FRAGMENT(several, m) { m.def("two(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(several, CPU, m) { m.impl("two", &two); }
""",
    "csrc/b.cpp": """#include <torch/script.h>
#include "ops.h"
static at::Tensor three(const at::Tensor &x) { return add(x, 3); }
static auto registry = torch::RegisterOperators().op("several::three", &three);
""",
    "csrc/c.cpp": """#include <torch/extension.h>
#include <ATen/ATen.h>
at::Tensor scaled(std::optional<at::Tensor> &x, int by) { return *x * by; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled, py::arg("x"), py::arg("by") = 4,
        py::call_guard<py::gil_scoped_release>());
}
""",
}


def test_several_extensions_of_all_kinds(tmp_path: Path) -> None:
    """Fragments, registered operators and pybind, with sources that two extensions share."""
    package = tmp_path / "package"
    for name, text in SEVERAL.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    check = """
assert [f(x)[0, 0].item() for f in (kernel.one, kernel.two, kernel.three)] == [2, 3, 4]
assert kernel.scaled(x)[0, 0].item() == 4 and kernel.scaled(x, by=5)[0, 0].item() == 5
"""
    migrate(package, tmp_path / "project", check)

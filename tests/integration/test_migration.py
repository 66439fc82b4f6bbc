"""`kbuild migrate`: the new projects build, and compute what the packages did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject, run, write_files

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

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

from several._C import count, scaled, shift_

one, two, three = torch.ops.several.one, torch.ops.several.two, torch.ops.several.three


@torch.library.register_fake("several::two")
def _(x):
    return torch.empty_like(x)
""",
    "csrc/ops.h": """#pragma once
#include <ATen/core/Tensor.h>
at::Tensor add(const at::Tensor &, int64_t);
""",
    "csrc/impl.cpp": """#include <ATen/ATen.h>
#include "ops.h"
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
    "csrc/b.cpp": """#include <ATen/core/op_registration/op_registration.h>
#include "ops.h"
static at::Tensor three(const at::Tensor &x) { return add(x, 3); }
static auto registry = torch::RegisterOperators().op("several::three", &three);
""",
    "csrc/c.cpp": """#include <torch/extension.h>
#include <ATen/ATen.h>
static int calls = 0;
at::Tensor scaled(std::optional<at::Tensor> &x, int by, float more) {
  calls++;
  return *x * by + more;
}
void shift_(torch::Tensor &x, int by) { x.add_(by); }
int count() { return calls; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled, py::arg("x"), py::arg("by") = 4, py::arg("more") = 0.0,
        py::call_guard<py::gil_scoped_release>());
  m.def("shift_", &shift_);
  m.def("count", &count);
}
""",
}


def test_several_extensions_of_all_kinds(tmp_path: Path) -> None:
    """Fragments, registered operators and pybind, with sources that two extensions share."""
    package = tmp_path / "package"
    write_files(package, SEVERAL)
    check = """
assert [f(x)[0, 0].item() for f in (kernel.one, kernel.two, kernel.three)] == [2, 3, 4]
assert kernel.scaled(x)[0, 0].item() == 4 and kernel.scaled(x, by=5, more=0.5)[0, 0].item() == 5.5
kernel.shift_(x, 4)
assert torch.equal(x, torch.full((2, 3), 5.0)) and kernel.count() == 2
"""
    migrate(package, tmp_path / "project", check)

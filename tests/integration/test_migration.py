"""`kbuild init --from-setup`: the new projects build, and compute what the packages did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, Bench, run

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
    bench = Bench(folder, folder.parent / "cache")
    bench.kbuild("init", ".", "--from-setup", str(package), "--name", "org/demo", "--no-git")
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


def test_cmake_with_torch_library(tmp_path: Path) -> None:
    package = ROOT / "tests" / "support" / "foreign" / "cmake"
    check = "assert torch.equal(kernel.row_sum(x), torch.full((2,), 3.0))"
    migrate(package, tmp_path / "project", check)

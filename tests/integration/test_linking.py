"""A CPU kernel as people have them: OpenMP, Torch's own Sleef, headers that others depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.checks.readers.elf import read_elf
from tests.support.command_project import CommandProject, write_files

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

BUILD = """\
[general]
name = "sums"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.11"

[kernel.sums]
backend = "cpu"
cxx-flags = ["-fopenmp", "-O2"]
depends = []
src = ["cpu/sums.cpp"]

[kernel.tables]
backend = "cpu"
depends = ["cutlass_3_8"]
src = ["cpu/tables.h", "cpu/tables.inc"]
"""
BINDING = """\
#include "registration.h"

#include <cutlass/only_here.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

torch::stable::Tensor shifted_exp(const torch::stable::Tensor &x);

static_assert(ONLY_HERE == 3);
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("shifted_exp(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("shifted_exp", TORCH_BOX(&shifted_exp));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
# It sees Torch because it includes it; `depends` does not say so.
SUMS = """\
#include "tables.h"

#include <omp.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#if defined(__x86_64__)
#include <immintrin.h>
extern "C" __m256 Sleef_expf8_u10(__m256);
__attribute__((target("avx2"))) static float exponential(float x) {
  return _mm256_cvtss_f32(Sleef_expf8_u10(_mm256_set1_ps(x)));
}
#else
#include <cmath>
static float exponential(float x) { return std::exp(x); }
#endif

torch::stable::Tensor shifted_exp(const torch::stable::Tensor &x) {
  torch::stable::Tensor out = torch::stable::empty_like(x);
  const float *from = static_cast<const float *>(x.data_ptr());
  float *to = static_cast<float *>(out.data_ptr());
  const long count = x.numel();
#pragma omp parallel for
  for (long i = 0; i < count; ++i) {
    to[i] = exponential(from[i]) + SHIFT * (omp_get_num_threads() > 0);
  }
  return out;
}
"""
PACKAGE = """\
from ._ops import ops

__all__ = ["shifted_exp"]


def shifted_exp(x):
    return ops.shifted_exp(x)
"""
LOAD = """
import torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")
x = torch.randn(10_001)
torch.testing.assert_close(kernel.shifted_exp(x), x.exp() + 2)
names = {{line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}}
print(len(names))
"""


def write(root: Path, **changed: str) -> CommandProject:
    files = {
        "build.toml": BUILD,
        "torch-ext/binding.cpp": BINDING,
        "torch-ext/sums/__init__.py": PACKAGE,
        "cpu/sums.cpp": SUMS,
        "cpu/tables.h": '#include "tables.inc"\n',
        "cpu/tables.inc": "constexpr float SHIFT = 2;\n",
        **changed,
    }
    write_files(root, files)
    headers = root.parent / "cutlass/include/cutlass"
    (root.parent / "cutlass/tools/util/include").mkdir(parents=True, exist_ok=True)
    headers.mkdir(parents=True, exist_ok=True)
    (headers / "only_here.h").write_text("#define ONLY_HERE 3\n")
    (headers / "cutlass.h").write_text("")
    release = zip(("MAJOR", "MINOR", "PATCH"), (3, 8, 0), strict=True)
    text = "".join(f"#define CUTLASS_{part} {number}\n" for part, number in release)
    (headers / "version.h").write_text(text)
    (root.parent / "cache").mkdir(exist_ok=True)
    return CommandProject(root, root.parent / "cache")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandProject, Path]:
    bench = write(tmp_path_factory.mktemp("linking") / "sums")
    entry = bench.built("--with-source", "cutlass_3_8=../cutlass")
    assert entry["status"] == "built"
    return bench, Path(entry["path"])


def test_openmp_is_linked_and_shared_with_torch(built: tuple[CommandProject, Path]) -> None:
    bench, folder = built
    (library,) = folder.glob("*.so")
    assert "libgomp.so.1" in read_elf(library).needed
    assert bench.python(LOAD.format(path=str(bench.root / "build"))).strip() == "1"


def test_no_check_refuses_it(built: tuple[CommandProject, Path]) -> None:
    bench, folder = built
    bench.kbuild("check", "--strict", "--no-load", str(folder))

"""TileLang compiles without a GPU: objects for the CPU, one for a GPU. Fetches 82 MB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from kbuild.system.errors import BuildError
from tests.support.dsl.tilelang_kernels import TileLangProject, shop
from tests.support.stores import dsl_store, warm_cache

pytestmark = pytest.mark.network
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SOURCE = """\
import tilelang
import tilelang.language as T


@T.macro
def twice(value):
    return value * 2


@tilelang.jit
def eager(x, scale: T.float32 = 1.5, dtype: T.dtype = T.float32):
    n = T.dynamic("n")
    wide = T.const("wide")
    x: T.Tensor[[n, wide], dtype]
    out = T.empty([n, wide], dtype)
    with T.Kernel(n, threads=128) as row:
        for i in T.Parallel(wide):
            out[row, i] = twice(x[row, i]) * scale
    return out


@tilelang.jit(out_idx=[-1])
def lazy(n, wide, dtype="float32"):
    @T.prim_func
    def main(x: T.Tensor((n, wide), dtype), out: T.Tensor((n, wide), dtype)):
        with T.Kernel(n, threads=128) as row:
            for i in T.Parallel(wide):
                out[row, i] = x[row, i] + 1
    return main


@tilelang.jit
def wrong(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(n, threads=1) as row:
        out[row] = x[row] + missing
    return out


def helper(x):
    return x
"""
OP = """
schema = "{name}(Tensor x) -> Tensor out"
shapes = {{ x = ["rows", "columns"], out = "x" }}
dtypes = ["float32"]
contiguous = true
constants = {{ wide = {{ value = "columns", choices = [64, 128] }} }}
"""


@pytest.fixture(scope="module")
def tilelang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TileLangProject]:
    with shop(tmp_path_factory.mktemp("tilelang"), SOURCE) as found:
        yield found


ASKING = """\
import tilelang
import tilelang.language as T
import torch
from tilelang.backend.target import determine_target
from tilelang.carver.arch import CUDA

ARCH = CUDA("cuda")
NAME = str(determine_target("auto", return_object=True).attrs["arch"])
COUNT = ARCH.compute_max_core
SHARED = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
assert NAME.endswith(str(ARCH.sm_version)), NAME


@tilelang.autotune(configs=[{"block": 256 if ARCH.sm_version >= 90 else 128}])
@tilelang.jit
def k(N, block=64):
    @T.prim_func
    def main(x: T.Tensor((N,), "float16"), y: T.Tensor((N,), "float16")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as at:
            for i in T.Parallel(block):
                y[at * block + i] = x[at * block + i]

    return main
"""


def test_what_a_source_asks_is_answered_for_each_arch(tmp_path):
    with shop(tmp_path, ASKING) as asking:
        found = asking.described("cuda13", "sm_80", "sm_90a")["k"].candidates
    assert [(dict(one.constants)["block"], one.archs) for one in found] == [
        (128, ("8.0",)),
        (256, ("9.0",)),
    ]


def test_an_object_for_a_gpu_is_the_same_every_time(tilelang, tmp_path):
    text = OP.format(name="eager").replace("64, 128", "64")
    (one,) = tilelang.compiled(text, "sm_90a")
    assert one.image.divisible == {"x", "out"}
    file = tmp_path / "object.o"
    file.write_bytes(one.code)
    assert {str(image.arch) for image in read_device_code(file).images} == {"9.0a"}
    with shop(tmp_path / "again", SOURCE, keeps=False) as other:
        other.compiled(OP.format(name="lazy").replace("64, 128", "64"), "cpu")
        (again,) = other.compiled(text, "sm_90a")
    assert again.code == one.code


def test_errors_name_the_line(tilelang):
    text = OP.format(name="wrong").replace('["rows", "columns"]', '["rows"]')
    with pytest.raises(BuildError, match=r"k\.py:38: NameError: name 'missing' is not defined"):
        tilelang.compiled(text[: text.index("constants")], "cpu")


def test_a_dtype_that_the_kernel_does_not_have(tilelang):
    text = OP.format(name="eager").replace("float32", "float64")
    with pytest.raises(BuildError, match=r"`x` of `eager` is a tensor of float32 in the kernel"):
        tilelang.compiled(text, "cpu")


CALLS = """
import sys
for name in ("tilelang", "tvm", "tvm_ffi"):
    sys.modules[name] = None
import importlib.util, pathlib, torch
folder = next(pathlib.Path(sys.argv[1]).glob("*cpu*"))
spec = importlib.util.spec_from_file_location(
    "kernel", folder / "__init__.py", submodule_search_locations=[str(folder)])
kernel = importlib.util.module_from_spec(spec)
sys.modules["kernel"] = kernel
spec.loader.exec_module(kernel)
for shape in [(1,), (3, 7), (0,), (0, 5), (100_003,), (2, 3, 255)]:
    x, y = torch.randn(shape), torch.randn(shape)
    wide = x.double() + 0.5 * y.double()
    torch.testing.assert_close(kernel.add(x, y, alpha=0.5).double(), wide, rtol=1e-6, atol=1e-6)
    assert torch.equal(kernel.mul(x, y), x * y)
x, bias = torch.randn(33, 256), torch.randn(257)[1:]
assert torch.equal(kernel.add_bias(x, bias), x + bias)
try:
    kernel.add_bias(torch.randn(2, 300), torch.randn(300))
except RuntimeError as error:
    assert "N = 300; there are images for N = 256, 1024" in str(error), error
else:
    raise SystemExit("300 columns")
"""


@pytest.mark.quick
def test_the_example_runs_on_the_cpu_without_the_dsl(tmp_path, tmp_path_factory):
    store = dsl_store("tilelang-0.1.15", "tilelang", tmp_path_factory)
    cache = warm_cache(tmp_path / "cache", store, tmp_path_factory)
    output = tmp_path / "build"
    project = tmp_path / "project"
    left = shutil.ignore_patterns("build", ".kbuild")
    shutil.copytree(EXAMPLES / "elementwise-tilelang", project, ignore=left)
    options = ("--backend", "cpu", "--toolchain", "wheels", "--output", str(output))
    for command in (("-m", "kbuild", "build", str(project), *options), ("-c", CALLS, str(output))):
        done = subprocess.run(  # noqa: TID251
            (sys.executable, *command),
            env={**os.environ, "KBUILD_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

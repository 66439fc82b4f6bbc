"""Launchers as functions of TVM-FFI, with its releases from wheels. Fetches 89 MB."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from kbuild.dsl.launcher.files import launcher_files
from tests.support.command_project import run
from tests.support.dsl.tilelang_kernels import shop
from tests.support.launcher.functions import library
from tests.support.tvm_ffi_interpreter import fetch, interpreter

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(
        (platform.machine(), platform.system()) != ("x86_64", "Linux"),
        reason="toolchains from wheels are for x86_64 Linux",
    ),
]
OLDEST = "0.1.0"
SOURCE = """\
import tilelang
import tilelang.language as T


@tilelang.jit
def scaled(x, scale: T.float32):
    rows = T.dynamic("rows")
    wide = T.const("wide")
    x: T.Tensor[[rows, wide], T.float32]
    out = T.empty([rows, wide], T.float32)
    with T.Kernel(rows, threads=1) as row:
        for i in T.serial(wide):
            out[row, i] = x[row, i] * scale
    return out
"""
OP = """
schema = "scaled(Tensor x, *, float scale=2.0) -> Tensor out"
shapes = { x = ["rows", "columns"], out = "x" }
dtypes = ["float32"]
contiguous = true
constants = { wide = { value = "columns", choices = [64, 128] } }
"""
CALLS = """
import sys
from threading import Thread
for name in ("tilelang", "tvm"):
    sys.modules[name] = None
import numpy as np
import tvm_ffi
scaled = tvm_ffi.load_module(sys.argv[1]).scaled

def work(seed, columns):
    x = np.random.default_rng(seed).standard_normal((seed, columns), np.float32)
    for _ in range(50):
        out = np.empty_like(x)
        assert scaled(x, 3, out) is None
        assert np.array_equal(out, x * np.float32(3))
    done.append(seed)

done = []
threads = [Thread(target=work, args=(n, 64 if n % 2 else 128)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 8, done
try:
    scaled(np.zeros((2, 65), np.float32), 1.0, np.zeros((2, 65), np.float32))
except RuntimeError as error:
    assert "wide = 65; there are images for wide = 64, 128" in str(error), error
else:
    raise SystemExit("65 columns")
print(tvm_ffi.__version__)
"""
ALLOCATES = """
import sys
import torch
import tvm_ffi
x = torch.randn(5, 64)
out = tvm_ffi.load_module(sys.argv[1]).scaled(x, 0.5)
assert torch.equal(torch.from_dlpack(out), x * 0.5)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def scaled(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with objects of TileLang for the CPU."""
    folder = tmp_path_factory.mktemp("scaled")
    with shop(folder / "project", SOURCE) as tilelang:
        op = tilelang.launched(OP, "cpu")
    files = launcher_files("k", [op], module=False, framework="tvm-ffi")
    (root,) = python.parents[1].glob("lib/python3.*/site-packages/tvm_ffi")
    return library(files, folder, "scaled", tested=False, root=root)


def test_objects_of_tilelang(scaled: Path, python: Path) -> None:
    for code in (CALLS, ALLOCATES):
        done = run((str(python), "-c", code, str(scaled)), cwd=scaled.parent)
        assert done.returncode == 0, done.stderr


def test_with_the_oldest_release(scaled: Path, python: Path, tmp_path: Path) -> None:
    oldest = fetch(tmp_path / "oldest", "--no-deps", f"apache-tvm-ffi=={OLDEST}")
    # Where it finds Torch, that release compiles for a minute.
    code = f"import sys\nsys.modules['torch'] = None\n{CALLS}"
    done = run(
        (str(python), "-c", code, str(scaled)), cwd=tmp_path, env={"PYTHONPATH": str(oldest)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == OLDEST

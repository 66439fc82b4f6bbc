"""The same launcher on HIP: other functions, modules by device."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.launcher.launched import (
    FAKES,
    Kernel,
    compiler,
    extension,
    files_of,
    launched,
    ops_of,
)

pytestmark = [pytest.mark.compile, pytest.mark.torch]
SECTION = """
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.k.op]]
schema = "twice(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)", "capability() + 2", "sm_count() // 100"]
"""
PROGRAM = """
import ctypes, sys, torch
hip = ctypes.CDLL(sys.argv[1])
hip.fake_text.restype = ctypes.c_char_p
torch.ops.load_library(sys.argv[2])
x = torch.ones(300).half()
for tensor in (x, x[8:], x[1:9], x):
    torch.ops._hip_tests.twice(tensor)
torch.ops._hip_tests._kbuild_preload()
print(hip.fake_text().decode(), end="")
"""


def test_launches(tmp_path):
    """In a process of its own: it has another Torch library than the other tests."""
    pytest.importorskip("torch")
    kernels = {"twice": Kernel(("x", "out", "N", "BLOCK!"), lambda _: {"shared": 512})}
    (op,) = ops_of(SECTION)
    files = files_of("k", [launched(op, kernels, ["gfx942", "gfx90a"])])
    path = extension(files, tmp_path, "_hip_tests", "-O0")
    compiler(FAKES / "hip_runtime.c", tmp_path / "libtorch_hip.so")
    command = (sys.executable, "-c", PROGRAM, str(tmp_path / "libtorch_hip.so"), str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stderr
    end = "grid={},2,3 block=128 shared=512 stream={} n={}"
    code = "{} BLOCK=64 x:fp16{} |8,8,4,8,8"
    fast, plain = code.format("gfx942", " fast"), code.format("gfx90a", "")
    assert done.stdout.splitlines() == [
        f"load 0 {fast}",
        f"launch 0 {fast} {end.format(5, '0x10', 300)}",
        f"launch 0 {fast} {end.format(5, '0x10', 292)}",
        f"load 1 {plain}",
        f"launch 1 {plain} {end.format(1, '0x11', 8)}",
        f"launch 0 {fast} {end.format(5, '0x10', 300)}",
        f"load 0 {code.format('gfx942', '')}",
    ]

"""How long a hundred specialisations of a Triton kernel take: one worker, two, and none to make.

python benchmarks/triton_units.py            measure and print
python benchmarks/triton_units.py --save     also write benchmarks/results/triton_units.json

50 candidates, aligned and plain, for one arch, of two kernels: an elementwise one, whose hundred
units take little more than the start of a worker, and a matrix product (fewer rounds). Each run
starts its workers anew, so interpreter and Triton's import count. One worker and two take turns, so
that a busy moment of the machine hits both; the figures are medians. The last figure is the hundred
units again, all of them kept: what an unchanged project costs. On a machine that is busy with other
things, the processor seconds of the workers say how much of the time was theirs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import tomli
from report import save, table
from units import Kernel, measure, missed

PIN = "triton==3.9.0"
FASTER = 1.8
"""How many times faster two workers are to be."""
AT_ONCE = 0.1
"""Seconds that a hundred kept units may take."""
AXPY = """\
import triton
import triton.language as tl


@triton.jit
def axpy(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = index < n
    total = tl.load(y_ptr + index, here)
    x = tl.load(x_ptr + index, here)
    for _ in range(ROUNDS):
        total += alpha * x
    tl.store(out_ptr + index, total, here)
"""
AXPY_OP = """\
schema = "axpy(Tensor x, Tensor y, float alpha) -> Tensor"
shapes = { x = ["..."], y = "x", out = "x" }
dtypes = ["float32"]
let = { n = "numel(x)" }
matrix = { BLOCK = [128, 256, 512, 1024, 2048], num_warps = [1, 2, 4, 8, 16], ROUNDS = [1, 2] }
grid = ["cdiv(n, BLOCK)"]
"""
PRODUCT = """\
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        across, down = (first + k)[None, :], (first + k)[:, None]
        a = tl.load(a_ptr + m * K + across, (m < M) & (across < K), 0.0)
        b = tl.load(b_ptr + down * N + n, (down < K) & (n < N), 0.0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + m * N + n, total.to(out_ptr.dtype.element_ty), (m < M) & (n < N))
"""
PRODUCT_OP = """\
schema = "product(Tensor a, Tensor b) -> Tensor"
shapes = { a = ["M", "K"], b = ["K", "N"], out = ["M", "N"] }
dtypes = ["bfloat16"]
constants = { BK = 32 }
matrix = { BM = [16, 32, 64, 128, 256], BN = [16, 32, 64, 128, 256], num_stages = [2, 3] }
grid = ["cdiv(M, BM)", "cdiv(N, BN)"]
"""


def kernel(name: str, op: str) -> Kernel:
    """The kernel of one file."""
    text = f'language = "triton"\ntoolchain = "{PIN}"\nsrc = ["{name}.py"]\n[[op]]\n{op}'
    return Kernel(name, tomli.loads(text))


SMALL, LARGE = kernel("axpy", AXPY_OP), kernel("product", PRODUCT_OP)
SOURCES = {"axpy": AXPY, "product": PRODUCT}
UNITS = 100


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--cache", type=Path, help="kbuild's cache (default: an empty one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        root.mkdir()
        for name, source in SOURCES.items():
            (root / f"{name}.py").write_text(source)
        cache = arguments.cache or Path(folder, "cache")
        small = measure(SMALL, cache, root, arguments.rounds, UNITS)
        large = measure(LARGE, cache, root, max(1, arguments.rounds // 5), UNITS)
    targets = [
        {"what": "product: two workers / one", "value": 1 / large["ratio"], "target": 1 / FASTER},
        {"what": "axpy: two workers / one", "value": 1 / small["ratio"], "target": 1 / FASTER},
        {"what": "100 kept units, s", "value": small["kept"], "target": AT_ONCE},
    ]
    result = {
        "units": UNITS,
        "rounds": arguments.rounds,
        "axpy": small,
        "product": large,
        "targets": targets,
    }
    if arguments.save:
        save("triton_units", result)
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        for one, found in ((SMALL, small), (LARGE, large)):
            print(f"{one.name}: {found['one_worker']} s, two workers {found['two_workers']} s")
        print(table(targets))
    return int(missed(targets))


if __name__ == "__main__":
    sys.exit(main())

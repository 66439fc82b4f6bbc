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
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli
from report import save, table

from kbuild.build.budget import Budget, opened
from kbuild.languages.environment import Environments
from kbuild.languages.expand import expand
from kbuild.languages.spec import bind, read_section
from kbuild.languages.spec.place import Place
from kbuild.languages.target import Target
from kbuild.languages.workshop import Workshop
from kbuild.run import LocalRunner
from kbuild.store import store_of
from kbuild.toolchains.wheels.installer import Installer

PIN = "triton==3.9.0"
TARGETS = (Target.parse("sm_90a"),)
MEMORY = 8192
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


@dataclass(frozen=True)
class Kernel:
    """What a plan says of the kernel."""

    name: str
    source: str
    op: str
    language: str = "triton"
    toolchain: tuple[str, ...] = (PIN,)
    flavour: str = "cuda13"

    @property
    def sources(self) -> tuple[str, ...]:
        """Its one file."""
        return (f"{self.name}.py",)

    @property
    def section(self) -> str:
        """As `build.toml` says it."""
        return (
            f'[kernel.{self.name}]\nlanguage = "triton"\ntoolchain = "{PIN}"\n'
            f'src = ["{self.name}.py"]\n[[kernel.{self.name}.op]]\n{self.op}'
        )


SMALL = Kernel("axpy", AXPY, AXPY_OP)
LARGE = Kernel("product", PRODUCT, PRODUCT_OP)


@contextmanager
def workshop(cache: Path, jobs: int, *, keeps: bool) -> Iterator[Workshop]:
    """A workshop of a run of its own."""
    installer = Installer(LocalRunner(), store_of(cache), say=print)
    with opened(Budget(jobs, MEMORY), cache, {}, keeps=keeps) as run:
        found = Workshop(run, Environments(installer))
        try:
            yield found
        finally:
            found.close()


def once(kernel: Kernel, cache: Path, root: Path, jobs: int, *, keeps: bool = False) -> float:
    """Seconds from describing the source to the last image."""
    op = read_section(kernel.name, tomli.loads(kernel.section)["kernel"][kernel.name]).ops[0]
    with workshop(cache, jobs, keeps=keeps) as shop:
        shop.prepare(kernel)
        began = time.perf_counter()
        functions = shop.describe(kernel, root)
        signatures = {name: one.parameters for name, one in functions.items()}
        bound = bind(op, op.launches[0], signatures, Place(()))
        if bound is None:
            raise SystemExit("the section does not fit the source")
        units = expand(op, TARGETS)
        made = shop.compile(kernel, root, [(unit, bound) for unit in units])
        seconds = time.perf_counter() - began
    if len(made) != len(units) or len(units) != 100:
        raise SystemExit(f"{len(made)} images of {len(units)} units")
    return seconds


def _processor_seconds() -> float:
    """Of the workers that have ended, and what they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(kernel: Kernel, cache: Path, root: Path, rounds: int) -> dict[str, float]:
    """Median seconds, and how they relate."""
    times: dict[int, list[float]] = {1: [], 2: []}
    spent: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for jobs, found in times.items():
            before = _processor_seconds()
            found.append(once(kernel, cache, root, jobs))
            spent[jobs].append(_processor_seconds() - before)
    once(kernel, cache, root, 2, keeps=True)
    kept = statistics.median(once(kernel, cache, root, 2, keeps=True) for _ in range(rounds))
    one, two = (statistics.median(found) for found in times.values())
    ratio = statistics.median(a / b for a, b in zip(times[1], times[2], strict=True))
    return {
        "one_worker": round(one, 2),
        "two_workers": round(two, 2),
        "one_worker_processor": round(statistics.median(spent[1]), 2),
        "two_workers_processor": round(statistics.median(spent[2]), 2),
        "kept": round(kept, 4),
        "ratio": round(ratio, 2),
    }


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
        for kernel in (SMALL, LARGE):
            (root / f"{kernel.name}.py").write_text(kernel.source)
        cache = arguments.cache or Path(folder, "cache")
        small = measure(SMALL, cache, root, arguments.rounds)
        large = measure(LARGE, cache, root, max(1, arguments.rounds // 5))
    targets = [
        {"what": "product: two workers / one", "value": 1 / large["ratio"], "target": 1 / FASTER},
        {"what": "axpy: two workers / one", "value": 1 / small["ratio"], "target": 1 / FASTER},
        {"what": "100 kept units, s", "value": small["kept"], "target": AT_ONCE},
    ]
    result = {
        "units": 100,
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
        for kernel, found in ((SMALL, small), (LARGE, large)):
            print(f"{kernel.name}: {found['one_worker']} s, two workers {found['two_workers']} s")
        print(table(targets))
    return int(any(row["value"] > row["target"] for row in targets))


if __name__ == "__main__":
    sys.exit(main())

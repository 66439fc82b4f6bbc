"""From saving a file to the first test: `kbuild dev`, beside the compiler alone.

    python benchmarks/dev_loop.py [--rounds 5] [--gpu] [--save]

Each round appends a comment with a new number to a file, as an editor saves it (a new file takes
the place of the old one), and waits until the first test of the project begins. The compiler's time
is that of the unit in the same build. Needs a C++ compiler, Torch and pytest; `--gpu` adds a `.cu`
file and a Triton kernel, and needs nvcc and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import save, table

ROOT = Path(__file__).parents[1]
TARGET_S = 3.0
COMPILER_S = 2.0
"""The target is for files that compile in this time."""
TIMEOUT_S = 600
BUILD = """\
[general]
name = "loop"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.loop]
backend = "cpu"
depends = []
include = ["loop"]
src = ["loop/loop.cpp", "loop/loop.h"]
"""
BINDING = """\
#include <torch/library.h>
#include <torch/types.h>

#include "../loop/loop.h"
#include "registration.h"

static at::Tensor sums(const at::Tensor &x) {
  auto out = at::empty_like(x);
  running_sums(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), x.numel());
  return out;
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("sums(Tensor x) -> Tensor");
  ops.impl("sums", torch::kCPU, &sums);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
KERNEL = """\
#include "loop.h"

#include <algorithm>
#include <numeric>
#include <vector>

void running_sums(const float *in, float *out, long size) {
  std::vector<double> sums(in, in + size);
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  std::transform(sums.begin(), sums.end(), out, [](double x) { return static_cast<float>(x); });
}
"""
FILES = {
    "build.toml": BUILD,
    "torch-ext/binding.cpp": BINDING,
    "torch-ext/loop/__init__.py": "from ._ops import ops\n",
    "loop/loop.h": "void running_sums(const float *in, float *out, long size);\n",
    "loop/loop.cpp": KERNEL,
}
TEST = """\
import time
from pathlib import Path

import {name}


def test_it():
    Path({mark!r}).write_text(str(time.time()))
"""


@dataclass(frozen=True)
class Case:
    """What is edited."""

    what: str
    name: str
    """Of the Python package."""
    path: str
    example: str = ""
    """The project, where it is an example."""

    def write(self, root: Path, mark: Path) -> None:
        """The project, with one test."""
        if self.example:
            skipped = shutil.ignore_patterns("build", ".kbuild", "tests")
            shutil.copytree(ROOT / "examples" / self.example, root, ignore=skipped)
        for path, text in {} if self.example else FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        (root / "tests").mkdir()
        (root / "tests" / "test_it.py").write_text(TEST.format(name=self.name, mark=str(mark)))


CASES = (
    Case("a .cpp without Torch headers", "loop", "loop/loop.cpp"),
    Case(
        "a .cpp for the stable ABI", "relu_stable_abi", "relu_cpu/relu_cpu.cpp", "relu-stable-abi"
    ),
    Case("a module of the package", "loop", "torch-ext/loop/__init__.py"),
)
GPU_CASES = (
    Case("a .cu without Torch headers", "relu", "relu_cuda/relu.cu", "relu"),
    Case("a Triton kernel", "rmsnorm_triton", "rmsnorm_triton/rmsnorm.py", "rmsnorm-triton"),
)


@contextmanager
def dev_loop(root: Path, device: str) -> Iterator[queue.SimpleQueue[str]]:
    """The lines of a running `kbuild dev`."""
    argv = [sys.executable, "-m", "kbuild", "dev", str(root), "--python", sys.executable]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(  # noqa: TID251
        [*argv, "--device", device],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ,
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield lines
    finally:
        process.terminate()
        process.wait()
        thread.join()


def wait(lines: queue.SimpleQueue[str]) -> None:
    """Read until the loop waits; the tests have passed."""
    seen = []
    while not seen or "waiting for changes" not in seen[-1]:
        seen.append(lines.get(timeout=TIMEOUT_S))
    if not any("tests passed" in line for line in seen):
        sys.exit("".join(seen))


def compile_seconds(root: Path, path: str) -> float:
    """Seconds of the unit in the last build; 0 where nothing was compiled."""
    log = root / ".kbuild" / "report" / "units.jsonl"
    units = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    times = [unit["end"] - unit["start"] for unit in units if unit.get("unit") == path]
    return times[-1] if times else 0.0


def measure(case: Case, rounds: int, device: str, folder: Path) -> dict[str, Any]:
    """Medians of all rounds but the first."""
    root, mark = folder / "project", folder / "mark"
    case.write(root, mark)
    file = root / case.path
    comment = "#" if file.suffix == ".py" else "//"
    starts, compiles = [], []
    with dev_loop(root, device) as lines:
        wait(lines)
        for number in range(rounds + 1):
            text = f"{file.read_text()}{comment} {number}.{time.time_ns()}\n"
            draft = file.with_name(f"{file.name}.tmp")
            draft.write_text(text)
            saved = time.time()
            draft.replace(file)
            wait(lines)
            starts.append(float(mark.read_text()) - saved)
            compiles.append(compile_seconds(root, case.path))
    is_compiled = file.suffix != ".py" or case.example
    return {
        "what": case.what,
        "seconds": round(statistics.median(starts[1:]), 3),
        "worst": round(max(starts[1:]), 3),
        "compiler": round(statistics.median(compiles[1:]), 3) if is_compiled else 0.0,
    }


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    rows = []
    cases = [(case, "cpu") for case in CASES]
    cases += [(case, "cuda:0") for case in GPU_CASES] * args.gpu
    for case, device in cases:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(case, args.rounds, device, Path(folder)))
            print(json.dumps(rows[-1]))
    targets = [
        {"what": row["what"], "value": row["seconds"], "target": TARGET_S}
        for row in rows
        if row["compiler"] < COMPILER_S
    ]
    print(table(targets))
    if args.save:
        load = os.getloadavg()[0]
        save("dev_loop", {"rounds": args.rounds, "load": round(load, 1), "rows": rows})


if __name__ == "__main__":
    main()

"""`kbuild.load_inline` and `kbuild.load` beside `torch.utils.cpp_extension.load_inline`.

Both functions get the same strings and arguments: a kernel for the CPU and, with `--cuda`, one for
the GPU whose function of C++ calls a kernel in CUDA. Each call is in a process of its own that has
imported Torch before, one after the other, alternating:

- cold: all caches are empty, those of kbuild and of cpp_extension;
- edited: one line of a function's body is changed, with the caches of the cold build;
- unchanged: the same again.

`load` is of a project with the same kernel, unchanged. Figures are seconds of wall time, the median
of the rounds, and the CPU seconds of the call and of all its processes. The machine must be idle.

    python benchmarks/load_inline.py [--rounds 3] [--cuda] [--save] [--json]

Needs Torch, ninja, a C++ compiler and, with `--cuda`, nvcc and a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import save, table

REPOSITORY = Path(__file__).resolve().parents[1]
CPU = r"""
#include <ATen/Parallel.h>

torch::Tensor relu(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
    const scalar_t* in = x.data_ptr<scalar_t>();
    scalar_t* out = y.data_ptr<scalar_t>();
    at::parallel_for(0, x.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        out[at] = in[at] > FLOOR ? in[at] : 0;
      }
    });
  });
  return y;
}
"""
CUDA_DECLARATION = "torch::Tensor relu(torch::Tensor x);\n"
CUDA = r"""
template <typename T>
__global__ void relu_kernel(T *out, const T *in, int64_t count) {
  int64_t at = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (at < count) {
    out[at] = in[at] > T(FLOOR) ? in[at] : T(0);
  }
}

torch::Tensor relu(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  int64_t count = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
    relu_kernel<scalar_t><<<(count + 255) / 256, 256>>>(
        y.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), count);
  });
  return y;
}
"""
CALL = """
import json, os, sys, time
import torch
request = json.loads(sys.argv[1])
if request["tool"] == "cpp_extension":
    from torch.utils.cpp_extension import load_inline as function
else:
    from kbuild import load_inline as function
began, before = time.perf_counter(), os.times()
module = function(**request["arguments"])
seconds, after = time.perf_counter() - began, os.times()
x = torch.tensor([-1.0, 0.5, 2.0], device=request["device"])
print(json.dumps({
    "wall": seconds,
    "cpu": sum(after[:4]) - sum(before[:4]),
    "result": module.relu(x).tolist(),
}))
"""
LOAD = """
import json, sys, time
began = time.perf_counter()
import torch
imported = time.perf_counter()
import kbuild
module = kbuild.load(sys.argv[1])
seconds = time.perf_counter() - imported
print(json.dumps({"torch": imported - began, "wall": seconds,
                  "result": module.relu(torch.tensor([-1.0, 0.5, 2.0])).tolist()}))
"""
BUILD = """\
[general]
name = "relu"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.relu]
backend = "cpu"
depends = ["torch"]
src = ["relu/relu.cpp"]
"""
BINDING = """\
#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include "registration.h"

at::Tensor relu(at::Tensor x);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu(Tensor x) -> Tensor", &relu);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
SOURCE_HEADERS = """\
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

namespace torch {
using namespace at;
}
"""


def run(code: str, argument: str, folder: Path) -> dict[str, Any]:
    """What a new process answers, with the caches in a folder."""
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "KBUILD_CACHE_DIR": str(folder / "kbuild"),
        "TORCH_EXTENSIONS_DIR": str(folder / "torch_extensions"),
    }
    command = [sys.executable, "-c", code, argument]
    done = subprocess.run(  # noqa: TID251
        command, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def arguments(floor: str, *, cuda: bool) -> dict[str, Any]:
    """What both functions get."""
    name = "relu_cuda" if cuda else "relu_cpu"
    if not cuda:
        return {"name": name, "cpp_sources": [CPU.replace("FLOOR", floor)], "functions": ["relu"]}
    return {
        "name": name,
        "cpp_sources": [CUDA_DECLARATION],
        "cuda_sources": [CUDA.replace("FLOOR", floor)],
        "functions": ["relu"],
    }


def measure_inline(rounds: int, *, cuda: bool) -> dict[str, Any]:
    """Medians by state and tool."""
    answers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for number in range(rounds):
        tools = ["cpp_extension", "kbuild"]
        with tempfile.TemporaryDirectory() as folder:
            for state, floor in (("cold", "0"), ("edited", "1"), ("unchanged", "1")):
                for tool in tools if number % 2 else reversed(tools):
                    request = {
                        "tool": tool,
                        "device": "cuda" if cuda else "cpu",
                        "arguments": arguments(floor, cuda=cuda),
                    }
                    answer = run(CALL, json.dumps(request), Path(folder))
                    if answer.pop("result") != [0.0, 0.5 if floor == "0" else 0.0, 2.0]:
                        sys.exit(f"{tool} returned something else")
                    answers.setdefault(state, {}).setdefault(tool, []).append(answer)
                    print(state, tool, answer, file=sys.stderr, flush=True)
    return {
        state: {
            tool: {
                kind: round(statistics.median(answer[kind] for answer in listed), 4)
                for kind in ("wall", "cpu")
            }
            for tool, listed in tools.items()
        }
        for state, tools in answers.items()
    }


def measure_load(rounds: int) -> dict[str, float]:
    """Seconds of an unchanged `load`, and of importing Torch before it."""
    with tempfile.TemporaryDirectory() as name:
        project = Path(name, "relu")
        files = {
            "build.toml": BUILD,
            "torch-ext/binding.cpp": BINDING,
            "torch-ext/relu/__init__.py": "from ._ops import ops\n\nrelu = ops.relu\n",
            "relu/relu.cpp": SOURCE_HEADERS + CPU.replace("FLOOR", "0"),
        }
        for path, text in files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        run(LOAD, str(project), Path(name))
        run(LOAD, str(project), Path(name))
        answers = [run(LOAD, str(project), Path(name)) for _ in range(2 * rounds + 1)]
    return {
        key: round(statistics.median(answer[key] for answer in answers), 4)
        for key in ("torch", "wall")
    }


def measure(rounds: int, *, cuda: bool) -> dict[str, Any]:
    """All of it, with the figures beside their targets."""
    import torch

    inline = {"cpu": measure_inline(rounds, cuda=False)}
    if cuda:
        inline["cuda"] = measure_inline(rounds, cuda=True)
    load = measure_load(rounds)
    targets = [
        {
            "what": f"{device}, {state}, {kind}: kbuild / cpp_extension",
            "value": tools["kbuild"][kind] / tools["cpp_extension"][kind],
            "target": 0.4,
        }
        for device, states in inline.items()
        for state, tools in states.items()
        if state != "unchanged"
        for kind in ("wall", "cpu")
    ]
    targets.append({"what": "load, unchanged (s)", "value": load["wall"], "target": 0.15})
    return {
        "torch": torch.__version__,
        "rounds": rounds,
        "load_inline (s)": inline,
        "load, unchanged, and import torch (s)": load,
        "targets": targets,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cuda", action="store_true", help="also the kernel for the GPU")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/load_inline.json"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if shutil.which("ninja", path=str(Path(sys.executable).parent)) is None:
        print("cpp_extension needs ninja on PATH", file=sys.stderr)
    result = measure(args.rounds, cuda=args.cuda)
    if args.save:
        save("load_inline-cuda" if args.cuda else "load_inline", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

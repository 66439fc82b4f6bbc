"""What a call of `examples/relu` costs on a CUDA GPU, beside cpp_extension on the same sources.

The variant is built here with `kbuild build --dev` (or taken from `--prebuilt`), and loaded by the
`kernels` client. `torch.utils.cpp_extension` builds the same source files in the same run, once
used as they are and once with the Python registrations that the example makes (fake kernels and
autograd). All of them are then called in turn, so that a busy machine troubles them alike.

    python benchmarks/launch.py [--prebuilt FOLDER] [--save]

Needs a CUDA GPU, nvcc, a C++ compiler, ninja, Torch and `kernels`. FOLDER holds variant folders.
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import save

ROOT = Path(__file__).resolve().parents[1]
RELU = ROOT / "examples" / "relu"
REGISTRATION = ROOT / "templates" / "project"
SOURCES = ("torch-ext/torch_binding.cpp", "relu_cuda/relu.cu", "relu_cuda/relu_cuda.cpp")
NAME = "relu_by_cpp_extension"
CALLS = 5000
ROUNDS = 15

Relu = Callable[[Any], Any]


def by_kbuild(folder: Path, prebuilt: Path | None) -> tuple[Relu, Any]:
    """The packaged function, and the bare op beneath it."""
    project = folder / "relu"
    shutil.copytree(RELU, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
    if prebuilt:
        shutil.copytree(prebuilt, project / "build")
    else:
        argv = (sys.executable, "-m", "kbuild", "build", str(project), "--dev", "--backend", "cuda")
        subprocess.run(argv, check=True, stdout=sys.stderr)  # noqa: TID251
    from kernels import get_local_kernel

    kernel = get_local_kernel(project, backend="cuda")
    return kernel.relu, kernel._ops.ops.relu  # noqa: SLF001


def by_cpp_extension(folder: Path) -> Relu:
    """The op of the same sources, as `torch.utils.cpp_extension.load` builds it."""
    import torch
    from torch.utils import cpp_extension

    include = [str(RELU / "torch-ext"), str(RELU / "relu_cuda"), str(REGISTRATION)]
    made = folder / "cpp_extension"
    made.mkdir()
    cpp_extension.load(
        NAME,
        [str(RELU / source) for source in SOURCES],
        extra_cflags=["-O3", "-DCUDA_KERNEL"],
        extra_cuda_cflags=["-O3", "-DCUDA_KERNEL"],
        extra_include_paths=include,
        build_directory=str(made),
        is_python_module=False,
    )
    return getattr(torch.ops, NAME).relu


def registered(name: str) -> None:
    """Give the op of cpp_extension what `examples/relu` registers in Python."""
    import torch

    ops = getattr(torch.ops, name)

    def save_x(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001
        ctx.save_for_backward(inputs[0])

    def gradient(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return ops.relu_backward(grad, x)

    torch.library.register_fake(f"{name}::relu", torch.empty_like)
    torch.library.register_autograd(f"{name}::relu", gradient, setup_context=save_x)


def microseconds(call: Relu, x: Any) -> float:
    """Time of one call, launches queued: what the CPU spends."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / CALLS * 1e6


def medians(calls: dict[str, Relu], guard: Callable[[], Any]) -> dict[str, float]:
    """Median microseconds of each, measured in turn."""
    import torch

    x = torch.randn(1024, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    with guard():
        for name, call in calls.items():
            if not torch.equal(call(x), torch.relu(x)):
                sys.exit(f"{name} does not compute torch.relu")
        for _ in range(ROUNDS):
            for name, call in calls.items():
                times[name].append(microseconds(call, x))
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def measure(prebuilt: Path | None) -> dict[str, Any]:
    """All rounds: the bare ops first, since a registration cannot be taken back."""
    import torch

    with tempfile.TemporaryDirectory() as name:
        function, op = by_kbuild(Path(name), prebuilt)
        other = by_cpp_extension(Path(name))
        below = {"kbuild": op, "cpp_extension": other, "torch.relu": torch.relu}
        modes = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        bare = {mode: medians(below, guard) for mode, guard in modes.items()}
        registered(NAME)
        same = {"kbuild, Python function": function, **below}
        alike = {mode: medians(same, guard) for mode, guard in modes.items()}
    return {
        "microseconds per call": {
            "cpp_extension without registrations": bare,
            "cpp_extension with the example's registrations": alike,
        },
        "like for like, no_grad": alike["no_grad"]["kbuild"] / alike["no_grad"]["cpp_extension"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prebuilt", type=Path, help="variant folders that were built elsewhere")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/launch.json")
    args = parser.parse_args()
    import torch

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        **measure(args.prebuilt),
    }
    if args.save:
        save("launch", result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Calls of captured functions and launches on a CUDA GPU, beside Triton and C++ by hand.

Beside each other, in one run: the ops of `tests/gpu/captured_functions`, the same functions
through Triton's JIT, and an RMS normalisation written by hand in C++ with the same allocations,
launches and gradients (`sources/captured_rms_norm.cu`, built by `torch.utils.cpp_extension`);
launches of `tests/gpu/captured` and Triton's; first calls in fresh processes.

    python benchmarks/captured_calls.py --prebuilt FOLDER [--work FOLDER] [--save]

FOLDER holds `functions/build` and `launches/build`, both projects as `kbuild build` left them.
Needs a CUDA GPU, nvcc, a C++ compiler, ninja, Torch and Triton.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).parent / "sources" / "captured_rms_norm.cu"
FUNCTIONS = ROOT / "tests" / "gpu" / "captured_functions"
LAUNCHES = ROOT / "tests" / "gpu" / "captured"
NAME = "captured_rms_norm_by_hand"
CALLS, ROUNDS = 300, 21
"""Calls of a round have fewer launches than the driver's queue holds."""
Call = Callable[[], Any]


def by_hand(folder: Path) -> Any:
    """The op in C++; one that was built earlier is taken."""
    import torch
    from torch.utils import cpp_extension

    library = folder / f"{NAME}.so"
    if library.is_file():
        torch.ops.load_library(str(library))
    else:
        cpp_extension.load(
            NAME,
            [str(SOURCE)],
            extra_cflags=["-O3"],
            extra_cuda_cflags=["-O3", "-std=c++20"],
            build_directory=str(folder),
            is_python_module=False,
        )
    return getattr(torch.ops, NAME).rms_norm


def on_host(call: Call) -> float:
    """Microseconds of the host for one call; the GPU is faster."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    microseconds = (time.perf_counter() - began) / CALLS * 1e6
    torch.cuda.synchronize()
    return microseconds


def in_turn(calls: Mapping[str, Call]) -> dict[str, float]:
    """Median of each, measured in turn, and the first one's part of the others."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            microseconds = on_host(call)
            if number:
                times[name].append(microseconds)
    medians = {name: statistics.median(each) for name, each in times.items()}
    first = next(iter(medians))
    ratios = {
        f"{first} / {name}": round(medians[first] / value, 3)
        for name, value in medians.items()
        if name != first
    }
    return {**{name: round(value, 2) for name, value in medians.items()}, **ratios}


def modes(functions: Mapping[str, Callable[..., Any]], *tensors: Any) -> dict[str, Any]:
    """A function's calls: with and without gradients."""
    import torch

    own = [tensor.clone().requires_grad_() for tensor in tensors]
    plain = {name: (lambda f=f: f(*tensors)) for name, f in functions.items()}
    recorded = {name: (lambda f=f: f(*own)) for name, f in functions.items()}
    gradient = torch.randn_like(functions["captured"](*tensors))

    def both(function: Callable[..., Any]) -> None:
        torch.autograd.grad(function(*own), own, gradient)

    times: dict[str, Any] = {"forward": in_turn(plain)}
    with torch.no_grad():
        times["forward, no_grad"] = in_turn(plain)
    with torch.inference_mode():
        times["forward, inference_mode"] = in_turn(plain)
    times["forward, gradients recorded"] = in_turn(recorded)
    times["forward and backward"] = in_turn(
        {n: (lambda f=f: both(f)) for n, f in functions.items()}
    )
    return times


def same(functions: Mapping[str, Callable[..., Any]], *tensors: Any) -> None:
    """End the run if one of them computes something else."""
    import torch

    results = {}
    for name, function in functions.items():
        own = [tensor.clone().requires_grad_() for tensor in tensors]
        out = function(*own)
        results[name] = [out, *torch.autograd.grad(out, own, torch.ones_like(out))]
    for name, values in results.items():
        for got, want in zip(values, results["captured"], strict=True):
            if not torch.allclose(got.float(), want.float(), atol=2e-2, rtol=2e-2):
                sys.exit(f"{name} computes something else")


def calls(prebuilt: Path, folder: Path) -> dict[str, Any]:
    """Microseconds of the host for calls with small tensors."""
    import torch

    sys.path.insert(0, str(FUNCTIONS))
    packaged = importlib.import_module("compare").packaged
    (variant,) = (prebuilt / "functions" / "build").glob("*cu130-x86_64-linux")
    ours = packaged(variant)
    rms_norm = importlib.import_module("norm_ops.rms_norm").RMSNormFunction.apply
    pointwise = importlib.import_module("norm_ops.pointwise")
    x = torch.randn(4, 1024, device="cuda", dtype=torch.float16)
    weight = torch.randn(1024, device="cuda", dtype=torch.float16)
    single = torch.randn(4, 1024, device="cuda")
    ops = importlib.import_module(f"{ours.__name__}._ops").ops
    norms = {
        "captured": ours.rms_norm,
        "captured, the op": ops.rms_norm,
        "Triton": rms_norm,
        "C++ by hand": by_hand(folder),
    }
    norms = {name: (lambda x, w, f=f: f(x, w, 1e-6)) for name, f in norms.items()}
    softmaxes = {
        "captured": ours.softmax,
        "captured, the op": ops.softmax,
        "Triton": pointwise.SoftmaxFunction.apply,
    }
    same(norms, x, weight)
    same(softmaxes, single)
    biased = {
        "captured": lambda: ours.add_bias(single, None, 2.0),
        "Triton": lambda: pointwise.add_bias(single, None, 2.0),
    }
    return {
        "rms_norm": modes(norms, x, weight),
        "softmax": modes(softmaxes, single),
        "add_bias": {"forward": in_turn(biased)},
    }


FIRST = """
import sys, time
sys.path.insert(0, {here!r})
import torch
x, w = torch.randn(6, 1024, device="cuda").half(), torch.randn(1024, device="cuda").half()
torch.cuda.synchronize()
if {variant!r}:
    from compare import packaged
    rms_norm = packaged({variant!r}).rms_norm
else:
    from norm_ops.rms_norm import RMSNormFunction
    rms_norm = RMSNormFunction.apply
began = time.perf_counter()
rms_norm(x, w, 1e-6)
torch.cuda.synchronize()
print(1000 * (time.perf_counter() - began))
"""


def first_calls(prebuilt: Path, folder: Path) -> dict[str, float]:
    """Milliseconds of the first call in a new process whose Torch has used the GPU; median of 3."""
    (variant,) = (prebuilt / "functions" / "build").glob("*cu130-x86_64-linux")
    medians = {}
    for name, path in {"captured": str(variant), "Triton, empty cache": ""}.items():
        rounds = []
        for number in range(3):
            env = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache{number}")}
            code = FIRST.format(here=str(FUNCTIONS), variant=path)
            command = (sys.executable, "-c", code)
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)  # noqa: TID251
            rounds.append(float(done.stdout))
        medians[name] = round(statistics.median(rounds), 2)
    return medians


def launches(prebuilt: Path, folder: Path) -> dict[str, Any]:
    """Launches in the author's Python; `tests/gpu/captured/compare.py` measures them."""
    answer = folder / "launches.json"
    command = (sys.executable, str(LAUNCHES / "compare.py"), str(prebuilt / "launches"))
    subprocess.run((*command, "--save", str(answer)), check=True, stdout=subprocess.DEVNULL)  # noqa: TID251
    return {
        key: value
        for key, value in json.loads(answer.read_text()).items()
        if key in ("launch_us", "first_call_ms")
    }


def targets(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures that have one."""
    norm = result["calls, microseconds"]["rms_norm"]
    rows = []
    for other, target in (("Triton", 0.4), ("C++ by hand", 1.15)):
        for mode in ("forward", "forward, no_grad", "forward, inference_mode"):
            value = norm[mode][f"captured / {other}"]
            rows.append({"what": f"{mode} / {other}", "value": value, "target": target})
    rows += [
        {"what": f"launch, {kind} / Triton", "value": row["ratio"], "target": 0.6}
        for kind, row in result["launches"]["launch_us"].items()
    ]
    first = result["first call, milliseconds"]["captured"]
    return [*rows, {"what": "first call, ms", "value": first, "target": 20}]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prebuilt", type=Path, required=True, help="folder of built projects")
    parser.add_argument("--work", type=Path, help="keeps the C++ op that was built")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/captured_calls.json"
    )
    args = parser.parse_args()
    import torch
    import triton

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    prebuilt = args.prebuilt.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = args.work or Path(name)
        result = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton of the JIT": triton.__version__,
            "first call, milliseconds": first_calls(prebuilt, folder),
            "calls, microseconds": calls(prebuilt, folder),
            "launches": launches(prebuilt, folder),
        }
    if args.save:
        save("captured_calls", result)
    print(json.dumps(result, indent=1))
    print(table(targets(result)))


if __name__ == "__main__":
    main()

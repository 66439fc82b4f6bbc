"""Kernels compiled ahead of time, on a CUDA GPU: launches, first calls, speed, size.

Beside each other, in one run: the op of `examples/rmsnorm-triton`, the same op written by hand in
CUDA C++ (`sources/rmsnorm.cu`, built by `torch.utils.cpp_extension`), Triton's own launch of the
same source, and its launch with `@triton.autotune`; `examples/gemm-triton` (and `gemm-cute`,
`gemm-cutile` and `gemm-tilelang`, where FOLDER has them) and cuBLAS; `examples/gemm-fp8-cute` and
the product of Torch with the same scales, cuBLAS again; rmsnorm and a copy of the same bytes.

    python benchmarks/aot.py --prebuilt FOLDER [--save]
    python benchmarks/aot.py --prebuilt FOLDER --products NAME [--save]

The second form measures the products alone, and writes `benchmarks/results/products-NAME.json`.

FOLDER holds `rmsnorm-triton/build` and `gemm-triton/build` as `kbuild build` made them. Needs a
CUDA GPU, nvcc, a C++ compiler, ninja, Torch, Triton and `kernels`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from report import save

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(__file__).parent / "sources"
TRITON = ROOT / "examples" / "rmsnorm-triton" / "rmsnorm_triton"
CALLS, ROUNDS = 2000, 15
SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (1024, 4096, 4096), (128, 4096, 4096))
SHAPES = (*SHAPES, (16, 4096, 4096))
ROWS = ((16384, 4096), (8192, 8192), (65536, 1024), (4096, 16384), (262144, 128))
FLUSH = 256 << 20
PRODUCTS = ("gemm-triton", "gemm-cute", "gemm-cutile", "gemm-tilelang")
SCALED, BLOCK = "gemm-fp8-cute", 128
Call = Callable[[], Any]


def by_kbuild(prebuilt: Path, name: str) -> Any:
    """The package, as the `kernels` client loads it."""
    from kernels import get_local_kernel

    return get_local_kernel(prebuilt / name, backend="cuda")


def by_hand(folder: Path, name: str) -> Any:
    """The op of `sources/<name>.cu`, which is in a namespace of its own."""
    import torch
    from torch.utils import cpp_extension

    cpp_extension.load(
        f"{name}_by_hand",
        [str(SOURCES / f"{name}.cu")],
        extra_cuda_cflags=["-O3"],
        build_directory=str(folder),
        is_python_module=False,
    )
    return getattr(getattr(torch.ops, f"{name}_by_hand"), name)


def registered() -> None:
    """Give the op written by hand what the example registers in Python."""
    import torch

    def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001
        ctx.save_for_backward(inputs[0], inputs[1])

    def gradient(ctx: Any, grad: Any) -> Any:
        return (grad * ctx.saved_tensors[0], None, None)

    name = "rmsnorm_by_hand::rmsnorm"
    torch.library.register_fake(name, lambda x, weight, eps=1e-6: torch.empty_like(x))  # noqa: ARG005
    torch.library.register_autograd(name, gradient, setup_context=save_inputs)


def by_triton(*, tuned: bool) -> Callable[..., Any]:
    """The kernel as a user of Triton launches it, with the candidate that kbuild takes here."""
    import torch
    import triton

    sys.path.insert(0, str(TRITON))
    from rmsnorm import rmsnorm_kernel as kernel

    if tuned:
        configs = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (4096, 8))]
        kernel = triton.autotune(configs, key=["N"])(kernel)
    fixed = {} if tuned else {"BLOCK": 1024, "num_warps": 4}

    def rmsnorm(x: Any, weight: Any, eps: float) -> Any:
        out = torch.empty_like(x)
        length = x.shape[-1]
        rows = x.numel() // length
        grid = (triton.cdiv(rows, 2),)
        kernel[grid](x, weight, out, rows, length, eps, ROWS=2, LOOP=False, **fixed)
        return out

    return rmsnorm


def queued(call: Call) -> float:
    """Microseconds of one call, launches queued: what the CPU spends."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / CALLS * 1e6


def in_turn(calls: Mapping[str, Call], measure: Callable[[Call], float]) -> dict[str, float]:
    """Median of each, measured in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(measure(call))
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def launches(prebuilt: Path, folder: Path) -> dict[str, Any]:
    """A call on a few rows, where the GPU is faster than the CPU that feeds it."""
    import torch

    x = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(1024, device="cuda", dtype=torch.bfloat16)
    kernel = by_kbuild(prebuilt, "rmsnorm-triton")
    functions = {
        "kbuild": kernel._ops.ops.rmsnorm,  # noqa: SLF001
        "C++ by hand": by_hand(folder, "rmsnorm"),
        "Triton": by_triton(tuned=False),
        "Triton, autotuned": by_triton(tuned=True),
        "kbuild, Python function": kernel.rmsnorm,
    }
    expected = torch.nn.functional.rms_norm(x.double(), (1024,), weight.double(), 1e-6)
    for name, function in functions.items():
        if not torch.allclose(function(x, weight, 1e-6).double(), expected, rtol=1e-2, atol=1e-3):
            sys.exit(f"{name} computes something else")
    calls = {name: (lambda f=f: f(x, weight, 1e-6)) for name, f in functions.items()}
    with torch.inference_mode():
        result: dict[str, Any] = {"inference_mode": in_turn(calls, queued)}
    # Torch enters an autograd formula in Python also where no gradient is asked for.
    registered()
    with torch.no_grad():
        result["no_grad, an autograd formula for both"] = in_turn(calls, queued)
    others = ("C++ by hand", "Triton", "Triton, autotuned")
    ratios = {
        mode: {name: round(times["kbuild"] / times[name], 3) for name in others}
        for mode, times in result.items()
    }
    return {"microseconds per call": result, "kbuild / other": ratios}


@contextlib.contextmanager
def flushed() -> Iterator[Call]:
    """Gives what empties the L2 cache."""
    import torch

    memory = torch.empty(FLUSH, dtype=torch.int8, device="cuda")
    yield memory.zero_


def on_gpu(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Median microseconds on the GPU of each, in turn, from a cold L2 cache."""
    import torch

    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    with flushed() as flush:
        for _ in range(repeats):
            for name, call in calls.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                flush()
                start.record()
                call()
                end.record()
                events[name].append((start, end))
        torch.cuda.synchronize()
    return {
        name: round(statistics.median(start.elapsed_time(end) * 1e3 for start, end in each), 2)
        for name, each in events.items()
    }


def gemm(prebuilt: Path) -> dict[str, Any]:
    """bfloat16 products of each example against cuBLAS."""
    import torch

    names = [name for name in PRODUCTS if (prebuilt / name / "build").is_dir()]
    ops = {name: by_kbuild(prebuilt, name)._ops.ops.gemm for name in names}  # noqa: SLF001
    result = {}
    for m, n, k in SHAPES:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
        calls: dict[str, Call] = {"cuBLAS": lambda a=a, b=b: torch.mm(a, b)}
        calls |= {name: lambda op=op, a=a, b=b: op(a, b) for name, op in ops.items()}
        with torch.inference_mode():
            times = on_gpu(calls, 30 if m > 4096 else 100)
        ratios = {f"cuBLAS / {name}": round(times["cuBLAS"] / times[name], 3) for name in ops}
        result[f"{m}x{n}x{k}"] = {**times, **ratios}
    return result


def scaled_gemm(prebuilt: Path) -> dict[str, Any]:
    """float8 products with scales per block of 128 against Torch's: cuBLAS from CUDA 12.9 on."""
    import torch

    op = by_kbuild(prebuilt, SCALED)._ops.ops.gemm  # noqa: SLF001
    result = {}
    for m, n, k in (*SHAPES, (4096, 7168, 2048)):
        a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
        of_a = torch.rand(m, k // BLOCK, device="cuda") + 0.5
        of_b = torch.rand(n // BLOCK, k // BLOCK, device="cuda") + 0.5
        by_column = of_a.t().contiguous().t()  # as Torch wants them
        calls: dict[str, Call] = {
            "Torch": lambda a=a, b=b, left=by_column, right=of_b: torch._scaled_mm(  # noqa: SLF001
                a, b.t(), left, right.t(), out_dtype=torch.bfloat16
            ),
            SCALED: lambda a=a, b=b, left=of_a, right=of_b: op(a, b, left, right),
        }
        with torch.inference_mode():
            times = on_gpu(calls, 30 if m > 4096 else 100)
        ratio = round(times["Torch"] / times[SCALED], 3)
        result[f"{m}x{n}x{k}"] = {**times, f"Torch / {SCALED}": ratio}
    return result


def products(prebuilt: Path) -> dict[str, Any]:
    """The products of all examples that are there."""
    result: dict[str, Any] = {"gemm, microseconds": gemm(prebuilt)}
    if (prebuilt / SCALED / "build").is_dir():
        result["float8 gemm with scales, microseconds"] = scaled_gemm(prebuilt)
    return result


def bandwidth(prebuilt: Path) -> dict[str, Any]:
    """rmsnorm against a copy of the same tensor: both read and write it once."""
    import torch

    op = by_kbuild(prebuilt, "rmsnorm-triton")._ops.ops.rmsnorm  # noqa: SLF001
    result = {}
    for rows, length in ROWS:
        x = torch.randn(rows, length, device="cuda", dtype=torch.bfloat16)
        weight, out = x[0].clone(), torch.empty_like(x)
        calls = {
            "kbuild": lambda x=x, weight=weight: op(x, weight, 1e-6),
            "copy": lambda x=x, out=out: out.copy_(x),
        }
        with torch.inference_mode():
            times = on_gpu(calls, 50)
        share = round(times["copy"] / times["kbuild"], 3)
        speed = round(x.nbytes * 2e-6 / times["kbuild"], 2)
        result[f"{rows}x{length}"] = {**times, "copy / kbuild": share, "TB/s": speed}
    return result


PACKAGE = """
import importlib.util, pathlib, sys, time
import torch
torch.zeros(1)
(package,) = pathlib.Path(sys.argv[1]).glob("build/*/__init__.py")
began = time.perf_counter()
spec = importlib.util.spec_from_file_location("package", package)
sys.modules["package"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["package"])
print(1e3 * (time.perf_counter() - began))
"""
FIRST = """
import sys, time
import torch
x = torch.ones(8, 1024, device="cuda", dtype=torch.bfloat16)
x + x
torch.cuda.synchronize()
began = time.perf_counter()
if sys.argv[1] == "kbuild":
    from kernels import get_local_kernel
    imported = time.perf_counter()
    from pathlib import Path
    rmsnorm = get_local_kernel(Path(sys.argv[2]), backend="cuda").rmsnorm
else:
    sys.path.insert(0, sys.argv[2])
    import aot
    imported = time.perf_counter()
    rmsnorm = aot.by_triton(tuned=False)
loaded = time.perf_counter()
rmsnorm(x, x[0], 1e-6)
torch.cuda.synchronize()
first = time.perf_counter()
rmsnorm(x, x[0], 1e-6)
torch.cuda.synchronize()
print(1e3 * (loaded - imported), 1e3 * (first - loaded), 1e3 * (time.perf_counter() - first))
"""


def import_time(prebuilt: Path) -> float:
    """Milliseconds that the package's own import takes where Torch is there; median of 5."""
    command = [sys.executable, "-c", PACKAGE, str(prebuilt / "rmsnorm-triton")]
    rounds = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: TID251
        for _ in range(5)
    ]
    return round(statistics.median(rounds), 2)


def first_calls(prebuilt: Path, folder: Path) -> dict[str, Any]:
    """Milliseconds in fresh processes whose Torch has used the GPU already."""
    arguments = {
        "kbuild": ("kbuild", str(prebuilt / "rmsnorm-triton")),
        "Triton, empty cache": ("triton", str(Path(__file__).parent)),
    }
    result = {}
    for name, given in arguments.items():
        rounds = []
        for index in range(3):
            env = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache{index}")}
            command = [sys.executable, "-c", FIRST, *given]
            done = subprocess.run(  # noqa: TID251
                command, env=env, capture_output=True, text=True, check=True
            )
            rounds.append([float(word) for word in done.stdout.split()[-3:]])
        columns = zip(*rounds, strict=True)
        medians = [round(statistics.median(column), 2) for column in columns]
        result[name] = dict(zip(("load", "first call", "second call"), medians, strict=True))
    return result


def sizes(prebuilt: Path) -> dict[str, int]:
    """Bytes of each extension."""
    found = sorted(prebuilt.glob("*/build/*/*.so"))
    return {f"{path.parents[2].name}, {path.parent.name}": path.stat().st_size for path in found}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prebuilt", type=Path, required=True, help="folder of built projects")
    parser.add_argument("--products", metavar="NAME", help="measure the products only")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/*.json")
    args = parser.parse_args()
    import torch
    import triton

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    if args.products:
        result = {**machine, **products(args.prebuilt)}
        if args.save:
            save(f"products-{args.products}", result)
        print(json.dumps(result, indent=1))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {
            **machine,
            "triton of the JIT": triton.__version__,
            "first calls, milliseconds": first_calls(args.prebuilt, folder),
            "import of the package, milliseconds": import_time(args.prebuilt),
            "launches": launches(args.prebuilt, folder),
            **products(args.prebuilt),
            "rmsnorm, microseconds": bandwidth(args.prebuilt),
            "bytes": sizes(args.prebuilt),
        }
    if args.save:
        save("aot", result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""One call of an op from CuTe DSL and from TileLang, beside other ways to launch it, on a CUDA GPU.

`x + alpha * y` of 1024 float32, where the GPU is faster than the CPU that feeds it: what is
measured is the call. In one run: an op of Torch by hand in C++ (`sources/add.cu`, that is
built by `torch.utils.cpp_extension`), kbuild's ops of `examples/add-cute` and
`examples/elementwise-tilelang`, kbuild's function of `examples/elementwise-tvm-ffi`, and what the
DSLs themselves offer for the same sources: TileLang's JIT call, and CuTe's compiled function with
and without TVM-FFI. All make their result anew. An op of Torch pays for Torch's dispatcher, the one
by hand as well; a function of TVM-FFI does not, so CuTe's compiled function of TVM-FFI is compared
with kbuild's from the same source, `silu(gate) * x`, too.

    python benchmarks/dsl_launch.py --prebuilt FOLDER [--save]
    python benchmarks/dsl_launch.py --prebuilt FOLDER --cutile [--save]

The second form compares the op of `examples/gemm-cutile`, with 64 x 64 elements, with `ct.launch`
of the same kernel, and writes `benchmarks/results/dsl_launch-cutile.json`.

FOLDER holds `<example>/build` as `kbuild build` made it. Needs a CUDA GPU, nvcc, a C++ compiler,
ninja, Torch, `kernels`, and both DSLs in the releases that the examples name.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from aot import ROOT, by_hand, by_kbuild, in_turn, queued
from report import save, table

SIZE, ALPHA = 1024, 2.0
BY_HAND, TORCH_OPS = "C++ by hand", ("kbuild, CuTe", "kbuild, TileLang")
FUNCTION = "kbuild, CuTe, TVM-FFI"
CUTILE, LAUNCH = "kbuild, cuTile", "cuTile's launch"
DSL_PACKAGES = ("tilelang", "nvidia-cutlass-dsl", "apache-tvm-ffi")
JIT, COMPILED = "TileLang's JIT", "CuTe's compiled function"
Add = Callable[[Any, Any], Any]


def by_hand_too(folder: Path) -> Add:
    """The op of `sources/add.cu`."""
    op = by_hand(folder, "add")
    return lambda x, y: op(x, y, alpha=ALPHA)


def torch_op(prebuilt: Path, example: str) -> Add:
    """The op of an example."""
    op = by_kbuild(prebuilt, example)._ops.ops.add  # noqa: SLF001
    return lambda x, y: op(x, y, alpha=ALPHA)


def functions(prebuilt: Path) -> tuple[dict[str, Add], dict[str, Add]]:
    """kbuild's functions of TVM-FFI, as `ops` has them and as `module`: the sum, the product."""
    kernel = by_kbuild(prebuilt, "elementwise-tvm-ffi")._ops  # noqa: SLF001
    ops, module = kernel.ops, kernel.module
    axpy, swiglu = module.axpy, module.swiglu
    total = {
        "kbuild, TileLang, TVM-FFI, `ops`": lambda x, y: ops.axpy(x, y, alpha=ALPHA),
        "kbuild, TileLang, TVM-FFI, `module`": lambda x, y: axpy(x, y, ALPHA),
    }
    return total, {f"{FUNCTION}, `ops`": ops.swiglu, FUNCTION: swiglu}


def by_tilelang() -> Add:
    """The JIT function of the example's source."""
    sys.path.insert(0, str(ROOT / "examples" / "elementwise-tilelang" / "elementwise_tilelang"))
    from elementwise import add

    return lambda x, y: add(x, y, ALPHA)


def by_cute() -> dict[str, Add]:
    """The compiled functions of the example's source, on Torch's current stream."""
    import cutlass
    import torch
    from cuda.bindings.driver import CUstream
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    sys.path.insert(0, str(ROOT / "examples" / "add-cute" / "add_cute"))
    from add import add

    ffi = compiled_with_ffi(add, cutlass.Float32(ALPHA), 8, 128)

    def told(tensor: Any) -> Any:
        return from_dlpack(tensor, assumed_align=16).mark_layout_dynamic()

    def plain_stream() -> Any:
        return CUstream(torch.cuda.current_stream().cuda_stream)

    some = [told(torch.empty(SIZE, device="cuda")) for _ in range(3)]
    plain = cute.compile(add, *some, cutlass.Float32(ALPHA), 8, 128, plain_stream())

    def through_ffi(x: Any, y: Any) -> Any:
        out = torch.empty_like(x)
        ffi(x, y, out, ALPHA)
        return out

    def directly(x: Any, y: Any) -> Any:
        out = torch.empty_like(x)
        plain(told(x), told(y), told(out), ALPHA, plain_stream())
        return out

    return {f"{COMPILED}, TVM-FFI": through_ffi, f"{COMPILED}, DLPack": directly}


def product_by_cute() -> Add:
    """The compiled function of the other example's source."""
    import torch

    sys.path.insert(0, str(ROOT / "examples" / "elementwise-tvm-ffi" / "swiglu_cute"))
    from swiglu import swiglu

    compiled = compiled_with_ffi(swiglu, 8, 128)

    def product(gate: Any, x: Any) -> Any:
        out = torch.empty_like(x)
        compiled(gate, x, out)
        return out

    return product


def small_products(prebuilt: Path) -> dict[str, Add]:
    """A product of small matrices by kbuild's op, and by cuTile's launch of its kernel."""
    import cuda.tile as ct
    import torch

    sys.path.insert(0, str(ROOT / "examples" / "gemm-cutile" / "gemm_cutile"))
    from gemm import gemm

    def launched(a: Any, b: Any) -> Any:
        out = torch.empty_like(a)
        # The candidate that the op chooses for up to 512 rows.
        ct.launch(torch.cuda.current_stream(), (1,), gemm, (a, b, out, 64, 64, 64, 8))
        return out

    return {CUTILE: by_kbuild(prebuilt, "gemm-cutile")._ops.ops.gemm, LAUNCH: launched}  # noqa: SLF001


FIRST = """
import sys, time, torch
from kernels import get_local_kernel
from pathlib import Path
a, b = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
began = time.perf_counter()
gemm = get_local_kernel(Path(sys.argv[1]), backend="cuda")._ops.ops.gemm
loaded = time.perf_counter()
gemm(a, b)
torch.cuda.synchronize()
print(1e3 * (loaded - began), 1e3 * (time.perf_counter() - loaded))
"""


def first_call(project: Path) -> dict[str, float]:
    """Milliseconds in fresh processes whose Torch has used the GPU already; medians of five."""
    command = (sys.executable, "-c", FIRST, str(project))
    rounds = []
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: TID251
        rounds.append([float(word) for word in done.stdout.split()[-2:]])
    load, call = (round(statistics.median(each), 2) for each in zip(*rounds, strict=True))
    return {"load": load, "first call": call}


def compiled_with_ffi(function: Any, *more: Any) -> Any:
    """A function of three float32 tensors, compiled as CuTe's documentation does for TVM-FFI."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    size = cute.sym_int64()
    fakes = [make_fake_compact_tensor(cutlass.Float32, (size,), assumed_align=16) for _ in range(3)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    return cute.compile(function, *fakes, *more, stream, options="--enable-tvm-ffi")


def measured(calls: Mapping[str, Add], expected: Add) -> dict[str, float]:
    """Microseconds of each call, in turn; all of them compute the same."""
    import torch

    x, y = torch.randn(2, SIZE, device="cuda")
    wanted = expected(x.double(), y.double())
    for name, call in calls.items():
        if not torch.allclose(torch.as_tensor(call(x, y)).double(), wanted, atol=1e-6):
            sys.exit(f"{name} computes something else")
    with torch.inference_mode():
        return in_turn({n: (lambda c=c: c(x, y)) for n, c in calls.items()}, queued)


def elementwise(prebuilt: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The calls of CuTe and TileLang in microseconds, and kbuild's against their targets."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        sums, products = functions(prebuilt)
        sums |= {
            BY_HAND: by_hand_too(Path(folder)),
            TORCH_OPS[0]: torch_op(prebuilt, "add-cute"),
            TORCH_OPS[1]: torch_op(prebuilt, "elementwise-tilelang"),
            JIT: by_tilelang(),
            **by_cute(),
        }
        products[COMPILED] = product_by_cute()
        total = measured(sums, lambda x, y: x + ALPHA * y)
    product = measured(products, lambda gate, x: torch.nn.functional.silu(gate) * x)
    cute = min(time for name, time in total.items() if name.startswith(COMPILED))
    pairs = [(ours, BY_HAND, total[ours] / total[BY_HAND], 1.1) for ours in TORCH_OPS]
    pairs += [
        (TORCH_OPS[1], JIT, total[TORCH_OPS[1]] / total[JIT], 1.0),
        (TORCH_OPS[0], COMPILED, total[TORCH_OPS[0]] / cute, 1.0),
        (FUNCTION, COMPILED, product[FUNCTION] / product[COMPILED], 1.0),
    ]
    return {"x + alpha * y": total, "silu(gate) * x": product}, [
        target(f"{ours} / {other}", ratio, limit) for ours, other, ratio, limit in pairs
    ]


def small_product(prebuilt: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The calls of cuTile's product in microseconds, and kbuild's against its target."""
    import torch

    a, b = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
    calls = small_products(prebuilt)
    with torch.inference_mode():
        small = in_turn({n: (lambda c=c: c(a, b)) for n, c in calls.items()}, queued)
    first = first_call(prebuilt / "gemm-cutile")
    targets = [
        target(f"{CUTILE} / {LAUNCH}", small[CUTILE] / small[LAUNCH], 0.5),
        target("milliseconds of the first call", first["first call"], 20),
    ]
    return {"a @ b, 64 x 64": small, "milliseconds in a fresh process": first}, targets


def target(what: str, value: float, at_most: float) -> dict[str, Any]:
    """A row of the table of targets."""
    return {"what": what, "value": round(value, 3), "target": at_most}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prebuilt", type=Path, required=True, help="folder of built projects")
    parser.add_argument("--cutile", action="store_true", help="measure the op of cuTile only")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/*.json")
    args = parser.parse_args()
    import torch

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    times, targets = (small_product if args.cutile else elementwise)(args.prebuilt)
    packages = ("cuda-tile",) if args.cutile else DSL_PACKAGES
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "packages": {name: metadata.version(name) for name in packages},
        "microseconds per call": times,
        "targets": targets,
    }
    if args.save:
        save("dsl_launch-cutile" if args.cutile else "dsl_launch", result)
    print(json.dumps(result, indent=1))
    print(table(targets), file=sys.stderr)


if __name__ == "__main__":
    main()

"""One call of an op from CuTe DSL and from TileLang, beside other ways to launch it, on a CUDA GPU.

`x + alpha * y` of 1024 float32, where the GPU is faster than the CPU that feeds it: what is
measured is the call. In one run: an op of Torch by hand in C++ (`sources/add.cu`, that is
built by `torch.utils.cpp_extension`), kbuild's ops of `examples/add-cute` and
`examples/elementwise-tilelang`, kbuild's functions of `examples/elementwise-tvm-ffi`, and what the
DSLs themselves offer for the same sources: TileLang's JIT call, and CuTe's compiled function with
and without TVM-FFI. All make their result anew.

    python benchmarks/dsl_launch.py --prebuilt FOLDER [--save]

FOLDER holds `<example>/build` as `kbuild build` made it. Needs a CUDA GPU, nvcc, a C++ compiler,
ninja, Torch, `kernels`, and both DSLs in the releases that the examples name.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from aot import ROOT, by_kbuild, in_turn, queued
from report import save, table

HAND = Path(__file__).parent / "sources" / "add.cu"
SIZE, ALPHA = 1024, 2.0
BY_HAND, TORCH_OPS = "C++ by hand", ("kbuild, CuTe", "kbuild, TileLang")
JIT, COMPILED = "TileLang's JIT", "CuTe's compiled function"
Add = Callable[[Any, Any], Any]


def by_hand(folder: Path) -> Add:
    """The op of `sources/add.cu`."""
    import torch
    from torch.utils import cpp_extension

    cpp_extension.load(
        "add_by_hand",
        [str(HAND)],
        extra_cuda_cflags=["-O3"],
        build_directory=str(folder),
        is_python_module=False,
    )
    op = torch.ops.add_by_hand.add
    return lambda x, y: op(x, y, alpha=ALPHA)


def torch_op(prebuilt: Path, example: str) -> Add:
    """The op of an example."""
    op = by_kbuild(prebuilt, example)._ops.ops.add  # noqa: SLF001
    return lambda x, y: op(x, y, alpha=ALPHA)


def functions(prebuilt: Path) -> dict[str, Add]:
    """kbuild's functions of TVM-FFI, with the guard against tensors without data and without."""
    kernel = by_kbuild(prebuilt, "elementwise-tvm-ffi")._ops  # noqa: SLF001
    bare = kernel.module.add
    return {
        "kbuild, TVM-FFI, `ops`": lambda x, y: kernel.ops.add(x, y, alpha=ALPHA),
        "kbuild, TVM-FFI, `module`": lambda x, y: bare(x, y, ALPHA),
    }


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
    from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream

    sys.path.insert(0, str(ROOT / "examples" / "add-cute" / "add_cute"))
    from add import add

    size = cute.sym_int64()
    fakes = [make_fake_compact_tensor(cutlass.Float32, (size,), assumed_align=16) for _ in range(3)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    given = (*fakes, cutlass.Float32(ALPHA), 8, 128)
    ffi = cute.compile(add, *given, stream, options="--enable-tvm-ffi")

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


def measured(calls: Mapping[str, Add]) -> dict[str, float]:
    """Microseconds of each call, in turn; all of them compute the same."""
    import torch

    x, y = torch.randn(2, SIZE, device="cuda")
    expected = x.double() + ALPHA * y.double()
    for name, call in calls.items():
        if not torch.allclose(torch.as_tensor(call(x, y)).double(), expected):
            sys.exit(f"{name} computes something else")
    with torch.inference_mode():
        return in_turn({n: (lambda c=c: c(x, y)) for n, c in calls.items()}, queued)


def against(times: Mapping[str, float]) -> list[dict[str, Any]]:
    """kbuild's calls against their targets, as ratios."""
    cute = min(time for name, time in times.items() if name.startswith(COMPILED))
    pairs = [(ours, BY_HAND, times[BY_HAND], 1.1) for ours in TORCH_OPS]
    pairs += [(TORCH_OPS[1], JIT, times[JIT], 1.0), (TORCH_OPS[0], COMPILED, cute, 1.0)]
    return [
        {"what": f"{ours} / {other}", "value": round(times[ours] / time, 3), "target": target}
        for ours, other, time, target in pairs
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prebuilt", type=Path, required=True, help="folder of built projects")
    parser.add_argument("--save", action="store_true", help="write results/dsl_launch.json")
    args = parser.parse_args()
    import torch

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            BY_HAND: by_hand(Path(folder)),
            TORCH_OPS[0]: torch_op(args.prebuilt, "add-cute"),
            TORCH_OPS[1]: torch_op(args.prebuilt, "elementwise-tilelang"),
            **functions(args.prebuilt),
            JIT: by_tilelang(),
            **by_cute(),
        }
        times = measured(calls)
    targets = against(times)
    packages = ("tilelang", "nvidia-cutlass-dsl", "apache-tvm-ffi")
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "packages": {name: metadata.version(name) for name in packages},
        "microseconds per call": times,
        "targets": targets,
    }
    if args.save:
        save("dsl_launch", result)
    print(json.dumps(result, indent=1))
    print(table(targets), file=sys.stderr)


if __name__ == "__main__":
    main()

"""Captured launches beside Triton's own: results, times of calls, first calls.

`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import first_call, packaged, report

HERE = Path(__file__).parent
LAUNCHES = 500
"""Fewer than the driver's queue holds: the host does not wait for the device."""
REPEATS = 25


def differing(ours, theirs):
    """The calls whose results differ in a bit."""
    import torch

    sys.path.insert(0, str(HERE))
    from calls import calls, results

    pairs = zip(calls(ours, "cuda"), calls(theirs, "cuda"), strict=True)
    names, count = [], 0
    for (name, own, tensors, differentiable), (_, other, _, _) in pairs:
        got = results(own, tensors, differentiable=differentiable)
        want = results(other, tensors, differentiable=differentiable)
        same = all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        close = all(
            torch.allclose(a.float(), b.float(), atol=2e-2, rtol=2e-2)
            for a, b in zip(got, want, strict=True)
        )
        names += [] if same else [f"{name}: {'close' if close else 'differs'}"]
        count += 1
    return names, count


def launches(ops):
    """A launch for each kind of kernel, small ones."""
    import torch

    x, w = torch.randn(6, 1024, device="cuda"), torch.randn(1024, device="cuda")
    out, r = torch.empty_like(x), torch.empty(6, device="cuda")
    label = torch.zeros(6, dtype=torch.int64, device="cuda")
    norm, scale = ops["norm"].norm_kernel, ops["pointwise"].scale_kernel
    loss = ops["loss"].loss_kernel
    n = x.numel()

    def plain():
        norm[(6,)](x, w, out, r, 1024, 1024, 1e-6, BLOCK=1024, num_warps=4)

    def tuned():
        scale[lambda meta: ((n + meta["BLOCK"] - 1) // meta["BLOCK"],)](x, out, n, 2.0)

    def heuristic():
        loss[(6,)](
            x, label, None, r, 1024, 1024, -100, 6, 0.0,
            BLOCK=1024, REDUCTION="mean", num_warps=4,
        )  # fmt: skip

    return {"jit": plain, "autotune": tuned, "heuristics": heuristic}


def microseconds(functions):
    """Of one launch of each, as the host sees it: the least of rounds that take turns."""
    import torch

    best = dict.fromkeys(functions, float("inf"))
    for _ in range(REPEATS):
        for function in functions:
            function()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(LAUNCHES):
                function()
            best[function] = min(best[function], time.perf_counter() - began)
            torch.cuda.synchronize()
    return [1e6 * best[function] / LAUNCHES for function in functions]


def modules(package):
    """The modules with kernels."""
    names = ("norm", "pointwise", "loss")
    return {name: importlib.import_module(f"{package}.{name}") for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    (variant,) = sorted((args.folder / "build").glob("torch-stable-abi*-cu13*-x86_64-linux"))
    ours = f"packaged({str(variant)!r})"
    firsts = {"captured": min(first_call(ours, "float32", HERE) for _ in range(3))}
    firsts["triton"] = first_call('__import__("captured_ops")', "float32", HERE)
    sys.path.insert(0, str(HERE))
    import captured_ops
    import triton

    ours = packaged(variant)
    names, count = differing(ours, captured_ops)
    theirs = launches(modules("captured_ops"))
    mine = launches(modules("built_variant.captured_ops"))
    times = {name: microseconds((mine[name], theirs[name])) for name in mine}
    values = {
        "triton": triton.__version__,
        "comparisons": count,
        "differ": names,
        "launch_us": {
            name: {"captured": round(a, 2), "triton": round(b, 2), "ratio": round(a / b, 2)}
            for name, (a, b) in times.items()
        },
        "first_call_ms": {name: round(value[0], 1) for name, value in firsts.items()},
        "imported_triton": firsts["captured"][1],
    }
    report(values, args.save)


if __name__ == "__main__":
    main()

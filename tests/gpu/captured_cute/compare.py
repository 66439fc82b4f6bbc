"""Functions that were captured at `cute.compile`, beside Torch; CuTe DSL cannot be imported.

`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


def cases(package):
    """The arguments of `scale`."""
    for dtype in TOLERANCES:
        for rows in (1, 7, 1000):
            x = torch.randn(rows, 64, device="cuda", dtype=dtype)
            for bias in (0.0, -1.5):
                yield x, 2.0, {"bias": bias}
                yield x, 0.5, {"bias": bias, "mode": package.Mode.SQUARE, "shift": 2}


def by_torch(package, x, factor, options):
    """The same by Torch in float32."""
    value = x.float()
    value = value * value if options.get("mode") is package.Mode.SQUARE else value
    return (value * factor + options["bias"] + options.get("shift", 0)).to(x.dtype)


def graph_is_right(package):
    """True if a captured call of a graph computes what a plain one does."""
    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = package.scale(x, 3.0)
    x.normal_()
    graph.replay()
    return bool(torch.equal(out, package.scale(x, 3.0)))


def clusters_are_right():
    """True if the driver counts a cluster of one block for each multiprocessor."""
    info = sys.modules["built_variant._launch_hardware"].HardwareInfo()
    count = info.get_device_multiprocessor_count()
    return [info.get_max_active_clusters(size) for size in (1, 2)] == [count, count // 2]


def refusal(package):
    """The message about a call that was not recorded."""
    try:
        package.scale(torch.zeros(4, 72, device="cuda", dtype=torch.float16), 2.0)
    except RuntimeError as error:
        return str(error)
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    for name in ("cutlass", "cuda"):
        sys.modules[name] = None
    package = packaged(next((args.folder / "build").glob("*cu130*")))
    differ, calls, first = [], [*cases(package)], 0.0
    for x, factor, options in calls:
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = package.scale(x, factor, **options)
        torch.cuda.synchronize()
        first = first or (time.perf_counter() - start) * 1000
        wanted, tolerance = by_torch(package, x, factor, options), TOLERANCES[x.dtype]
        if not torch.allclose(out.float(), wanted.float(), rtol=tolerance, atol=tolerance):
            differ.append(f"{x.dtype} {tuple(x.shape)} {factor} {options}")
    report(
        {
            "comparisons": len(calls),
            "differ": differ,
            "graph": graph_is_right(package),
            "clusters": clusters_are_right(),
            "refusal": refusal(package),
            "first_call_ms": round(first, 2),
        },
        args.save,
    )


if __name__ == "__main__":
    main()

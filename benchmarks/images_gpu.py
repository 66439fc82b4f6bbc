"""Results and times of two builds of the Triton examples, on a CUDA GPU.

    python benchmarks/images_gpu.py BEFORE AFTER [--save]

Both folders hold `attention-triton/build` and `rmsnorm-triton/build` as `kbuild build` made them.
Every build runs in processes of its own, in turn. Results and gradients of the same inputs are
compared bit for bit, and calls are timed. `aligned` inputs must have the same bits, and must not
take longer than 1.05 times; the others run the plain image of a default candidate, which may round
elsewhere. Needs a CUDA GPU, Torch and `kernels`; neither kbuild nor Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from report import save, table

ROUNDS, TURNS, CALLS = 15, 5, 30
SLOWER = 1.05
LAYOUTS = ("aligned", "any size", "unaligned")
"""Sizes and addresses divisible by 16; a number of rows that is not; an address that is not."""


def tensor(shape: tuple[int, ...], dtype: Any, layout: str) -> Any:
    """Random values, which are the same in each process."""
    import torch

    if layout != "unaligned":
        return torch.randn(shape, device="cuda", dtype=dtype)
    wide = torch.randn(*shape[:-1], shape[-1] + 3, device="cuda", dtype=dtype)
    return wide[..., 1:-2]


def calls(folder: Path) -> Iterator[tuple[str, Callable[..., Any], list[Any]]]:
    """Name, function and tensors of each call."""
    import torch
    from kernels import get_local_kernel

    attention = get_local_kernel(folder / "attention-triton" / "build")
    rmsnorm = get_local_kernel(folder / "rmsnorm-triton" / "build")
    for dtype in (torch.float16, torch.bfloat16):
        for layout in LAYOUTS:
            rows = 4096 - (layout == "any size")
            label = f"{layout}, {dtype}".replace("torch.", "")
            for n in (128, 1024, 4096, 8192):
                x = tensor((rows, n), dtype, layout)
                weight = tensor((n,), dtype, "aligned")
                yield f"rms_norm {n}, {label}", attention.rms_norm, [x, weight]
                yield f"rmsnorm {n}, {label}", rmsnorm.rmsnorm, [x, weight]
            for dim in (64, 128):
                q, k, v = (tensor((2, rows, h, dim), dtype, layout) for h in (16, 4, 4))
                for causal in (False, True):
                    name = f"attention {dim} {'causal' if causal else 'full'}, {label}"
                    yield name, lambda *t, c=causal: attention.attention(*t, causal=c), [q, k, v]
                ends = torch.tensor([0, rows // 3, rows], device="cuda", dtype=torch.int32)
                yield (
                    f"attention_varlen {dim}, {label}",
                    lambda *t, e=ends, r=rows: attention.attention_varlen(*t, e, r, causal=True),
                    [q[0], k[0], v[0]],
                )


def run(folder: Path, output: Path) -> None:
    """Write results, gradients and times of all calls by one build."""
    import torch

    # Small kernels are bound by the host, whose cores differ.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    for name, function, tensors in calls(folder):
        own = [x.detach().requires_grad_() for x in tensors]
        out = function(*own)
        gradients = torch.autograd.grad(out, own, torch.randn_like(out))
        times = []
        with torch.no_grad():
            for _ in range(1 if "unaligned" in name else ROUNDS):
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(CALLS):
                    function(*tensors)
                torch.cuda.synchronize()
                times.append((time.perf_counter() - began) / CALLS * 1e6)
        bits = [x.detach().cpu() for x in (out, *gradients)]
        results[name] = {"bits": bits, "us": statistics.median(times)}
    torch.save(results, output)


def compared(before: Path, after: Path) -> dict[str, Any]:
    """For each call: whether its results have the same bits, and the times."""
    import torch

    turns: dict[str, list[Any]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(TURNS):
            for which, folder in (("before", before), ("after", after)):
                output = Path(scratch) / which
                command = [sys.executable, __file__, "--run", str(output), str(folder)]
                subprocess.run(command, check=True)  # noqa: TID251
                turns[which].append(torch.load(output))
    measured = {}
    for name, first in turns["before"][0].items():
        times = {which: min(turn[name]["us"] for turn in many) for which, many in turns.items()}
        others = [turn[name]["bits"] for turn in turns["before"][1:]]
        same = [
            all(map(torch.equal, first["bits"], bits))
            for bits in (*others, turns["after"][0][name]["bits"])
        ]
        measured[name] = {
            "us before": round(times["before"], 2),
            "us after": round(times["after"], 2),
            "ratio": round(times["after"] / times["before"], 3),
            "same bits": same[-1],
            "repeatable": all(same[:-1]),
        }
    return measured


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help="write results/images-gpu.json")
    args = parser.parse_args()
    if args.run:
        run(args.folders[0], args.run)
        return
    import torch

    measured = compared(*args.folders)
    aligned = [one for name, one in measured.items() if "unaligned" not in name]
    ratios = [one["ratio"] for one in aligned]
    different = sum(one["repeatable"] and not one["same bits"] for one in aligned)
    rows = [
        {"what": "aligned calls, slowest after / before", "value": max(ratios), "target": SLOWER},
        {"what": "aligned calls, other bits", "value": different, "target": 0},
    ]
    if args.save:
        gpu = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        save("images-gpu", {**gpu, "calls": measured, "targets": rows})
    print(json.dumps(measured, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()

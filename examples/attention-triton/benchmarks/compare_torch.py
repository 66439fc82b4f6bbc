"""Attention beside Torch's: ``python compare_torch.py VARIANT [--save FILE]``.

``VARIANT`` is a folder of ``build/``. The script needs a GPU and Torch, and neither Triton nor
kbuild. Each row of the table has 16384 tokens and 2048 elements per token; ratios above 1 say that
the package is faster than the faster one of Torch's backends.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, WIDTH = 16384, 2048
LENGTHS = (2048, 4096, 8192, 16384)
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WARM_SECONDS = 0.2
MOST_ERROR = 1e-2
"""Of the norm of a result, beside Torch's: both are rounded to 16 bits."""


def load(variant: str):
    """The built package, by its folder."""
    folder = Path(variant).resolve()
    spec = importlib.util.spec_from_file_location(
        "attention_variant", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def milliseconds(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median of each, measured in turns, with nothing of the tensors in the L2 cache."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():  # an idle GPU has a lower clock
        began = time.perf_counter()
        while time.perf_counter() - began < WARM_SECONDS:
            call()
            torch.cuda.synchronize()
    for _ in range(repeats):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def by_torch(backend: SDPBackend, q, k, v, causal: bool) -> torch.Tensor:
    """The same attention by one of Torch's backends."""
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    with sdpa_kernel(backend):
        out = torch.nn.functional.scaled_dot_product_attention(
            *heads, is_causal=causal, enable_gqa=q.shape[2] != k.shape[2]
        )
    return out.transpose(1, 2)


def able(way: Callable[[], torch.Tensor]) -> torch.Tensor | None:
    """The result; None where a backend of Torch does not have such attention."""
    try:
        return way()
    except RuntimeError as error:
        if "No available kernel" not in str(error):
            raise
        return None


def packed(kernel, q, k, v, causal: bool) -> torch.Tensor:
    """The same attention as that of packed sequences."""
    batches, rows = q.shape[:2]
    bounds = torch.arange(batches + 1, device="cuda", dtype=torch.int32) * rows
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    return kernel.attention_varlen(*flat, bounds, rows, causal).view(q.shape)


def compare(kernel, rows: int, dim: int, *, causal: bool, group: int, repeats: int) -> dict:
    """One row of the table."""
    torch.manual_seed(0)
    heads = WIDTH // dim
    shape = (TOKENS // rows, rows, heads, dim)
    options = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
    q = torch.randn(shape, **options)
    k, v = (torch.randn(*shape[:2], heads // group, dim, **options) for _ in range(2))
    ways = {
        "ours": lambda: kernel.attention(q, k, v, causal),
        "packed": lambda: packed(kernel, q, k, v, causal),
        **{name: lambda b=b: by_torch(b, q, k, v, causal) for name, b in BACKENDS.items()},
    }
    outs = {name: out for name, way in ways.items() if (out := able(way)) is not None}
    ways = {name: ways[name] for name in outs}
    theirs = "cudnn" if "cudnn" in outs else "flash"
    grad = torch.randn_like(q)

    def gradients(name: str):
        return torch.autograd.grad(outs[name], (q, k, v), grad, retain_graph=True)

    results = {name: [outs[name], *gradients(name)] for name in ways}
    errors = {
        name: max(
            ((x.float() - y.float()).norm() / y.float().norm()).item()
            for x, y in zip(results[name], results[theirs], strict=True)
        )
        for name in ("ours", "packed")
    }
    with torch.no_grad():
        forward = milliseconds(ways, repeats)
    backward = milliseconds({name: lambda n=name: gradients(n) for name in ways}, repeats)
    flops = 4 * TOKENS * rows * WIDTH * (0.5 if causal else 1)
    return {
        "head": dim, "rows": rows, "causal": causal, "group": group, "errors": errors,
        "forward_tflops": {name: flops / t / 1e9 for name, t in forward.items()},
        "backward_tflops": {name: 2.5 * flops / t / 1e9 for name, t in backward.items()},
    }  # fmt: skip


def printed(row: dict) -> str:
    """A row as text: TFLOP/s, and the ratios to the faster one of Torch's."""
    mask = "causal" if row["causal"] else "full"
    text = f"{row['head']:4} {row['rows']:6} {mask:6} {row['group']:2}"
    names = ("ours", "packed", *BACKENDS)
    for key in ("forward_tflops", "backward_tflops"):
        rates = row[key]
        best = max(rates[name] for name in BACKENDS if name in rates)
        text += "  |" + "".join(f" {rates.get(name, 0):5.0f}" for name in names)
        text += f"  {rates['ours'] / best:5.2f} {rates['packed'] / best:5.2f}"
    return text + "".join(f"  {error:.0e}" for error in row["errors"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--save")
    arguments = parser.parse_args()
    kernel, rows = load(arguments.variant), []
    columns = "  ours  packed flash cudnn ratio packed"
    print(f"head   rows mask group | forward:{columns} | backward:{columns} | errors", flush=True)
    for dim in (64, 128):
        for causal in (False, True):
            for length in LENGTHS:
                options = {"causal": causal, "group": 1, "repeats": arguments.repeats}
                rows.append(compare(kernel, length, dim, **options))
                print(printed(rows[-1]), flush=True)
        options = {"causal": True, "group": 4, "repeats": arguments.repeats}
        rows.append(compare(kernel, 4096, dim, **options))
        print(printed(rows[-1]), flush=True)
    if arguments.save:
        now = dt.datetime.now(dt.timezone.utc).date().isoformat()
        about = {"date": now, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        Path(arguments.save).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    wrong = [row for row in rows if max(row["errors"].values()) > MOST_ERROR]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

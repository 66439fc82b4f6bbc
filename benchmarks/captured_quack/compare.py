"""Functions of quack-kernels without CuTe DSL, beside the original, on a GPU.

    pip download --no-deps quack-kernels==0.6.5, and unpack `quack` into this folder
    QUACK_CACHE_ENABLED=0 kbuild capture --record --no-run -- python calls.py
    kbuild build --variant '*cu130*' --allow ops
    python compare.py original --results FOLDER
    python compare.py package --results FOLDER [--save]

The first run needs CuTe DSL; the second makes sure that it cannot be imported, compares the
results bit for bit, and writes `benchmarks/results/captured_quack.json`. Without `--no-run`,
`calls.py gpu` records what quack's tuner chooses on the GPU at hand, which takes many minutes. The
original's own defaults are what tuned calls are compared with, as numbers.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import torch
from calls import Calls
from report import save

ABSENT = ("cutlass", "cuda", "triton")
CALLS, REPEATS = 3000, 5


def load_package():
    """Import the built variant; return the function that imports a module of quack."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ABSENT]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(ABSENT))
    (variant,) = (HERE / "build").glob("tvm-ffi*-cu130-*")
    places = [str(variant)]
    spec = importlib.util.spec_from_file_location(
        "captured", variant / "__init__.py", submodule_search_locations=places
    )
    module = sys.modules["captured"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda name: importlib.import_module(f"captured.quack.{name}")


def measured(load):
    """Milliseconds of the first call in the process, microseconds of later ones on the host."""
    softmax = load("softmax")
    x = torch.randn(128, 1024, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    began = time.perf_counter()
    softmax.softmax_fwd(x)
    torch.cuda.synchronize()
    first, best = time.perf_counter() - began, float("inf")
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            softmax.softmax_fwd(x)
        best = min(best, (time.perf_counter() - began) / CALLS)
    return {"first call, ms": round(first * 1e3, 2), "later call, us": round(best * 1e6, 2)}


def results(load, *, tuned):
    """Tensors of every call, and the milliseconds of each."""
    tensors, times = {}, {}
    for name, run in Calls(load, tuned=tuned).every():
        torch.manual_seed(1)
        began = time.perf_counter()
        out = run()
        torch.cuda.synchronize()
        times[name] = (time.perf_counter() - began) * 1e3
        tensors[name] = [tensor.detach().cpu() for tensor in out]
    return tensors, {
        "slowest call that is the first of its kind, ms": round(max(times.values()), 1)
    }


def is_same(tensor, wanted, *, is_exact):
    """True for equal bits, or for close numbers where another candidate may have computed them."""
    if is_exact:
        return torch.equal(tensor, wanted)
    return torch.allclose(tensor.float(), wanted.float(), rtol=2e-2, atol=2e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("original", "package"))
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    is_package = args.which == "package"
    own = load_package() if is_package else lambda name: importlib.import_module(f"quack.{name}")
    own("softmax")
    imported = {"import, s": round(time.perf_counter() - began, 2)}
    figures = {**imported, **measured(own)}
    clusters = own("cute_dsl_utils").get_max_active_clusters
    figures["active clusters of 1, 2, 4"] = [clusters(size) for size in (1, 2, 4)]
    tensors, slowest = results(own, tuned=is_package)
    figures |= slowest
    if not is_package:
        torch.save([tensors, figures], args.results / "original.pt")
        print(json.dumps(figures))
        return
    wanted, original = torch.load(args.results / "original.pt")
    same = {
        name: all(
            is_same(*pair, is_exact="tuned" not in name)
            for pair in zip(tensors[name], wanted[name], strict=True)
        )
        for name in wanted
    }
    report = {
        "gpu": torch.cuda.get_device_name(),
        "calls": len(same),
        "tensors": sum(map(len, wanted.values())),
        "equal calls": sum(same.values()),
        "different": [name for name, is_same in same.items() if not is_same],
        "original": original,
        "package": figures,
    }
    print(json.dumps(report, indent=1))
    if args.save:
        save("captured_quack", report)


if __name__ == "__main__":
    main()

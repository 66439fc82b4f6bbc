"""Libraries in CuTe DSL without it, beside the original, on a GPU: quack-kernels and flash-attn-4.

    cd captured_LIBRARY; pip download --no-deps, and unpack the package of `build.toml` into it
    kbuild capture --record --no-run -- python calls.py
    kbuild build --variant '*cu130*' --allow ops
    python captured_cute.py LIBRARY original|package --times --results FOLDER   # several, in turn
    python captured_cute.py LIBRARY original --results FOLDER
    python captured_cute.py LIBRARY package --results FOLDER [--save]

LIBRARY is `quack` (quack-kernels 0.6.5) or `flash_attn` (flash-attn-4 4.0.0b36, and quack beside
it). While recording, `QUACK_CACHE_ENABLED=0` and `FLASH_ATTENTION_NUM_SMS=132` are set. The first
run needs CuTe DSL; the second makes sure that it cannot be imported, compares the results bit for
bit, and writes `benchmarks/results/captured_LIBRARY.json`. `kbuild capture --record -- python
calls.py gpu tuned` adds what quack's tuners choose on the GPU at hand: three minutes. Tuned calls
are compared with the original's own defaults, as numbers.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from pathlib import Path

import torch
from report import save

HERE = Path(__file__).resolve().parent

ABSENT = ("cutlass", "cuda", "triton")
CALLS, REPEATS = 3000, 5


def load_package(folder):
    """Import the built variant; return the function that imports a module of the library."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ABSENT]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(ABSENT))
    (variant,) = (folder / "build").glob("tvm-ffi*-cu130-*")
    places = [str(variant)]
    spec = importlib.util.spec_from_file_location(
        "captured", variant / "__init__.py", submodule_search_locations=places
    )
    module = sys.modules["captured"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = folder.name.removeprefix("captured_")
    return lambda name: importlib.import_module(f"captured.{library}.{name}")


def measured(call):
    """Milliseconds of the first call in the process, microseconds of later ones on the host."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first, best = time.perf_counter() - began, float("inf")
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - began) / CALLS)
    return {"first call, ms": round(first * 1e3, 2), "later call, us": round(best * 1e6, 2)}


def results(calls):
    """Tensors of every call, and the milliseconds of each."""
    tensors, times = {}, {}
    for name, run in calls.every():
        torch.manual_seed(1)
        began = time.perf_counter()
        out = run()
        torch.cuda.synchronize()
        times[name] = (time.perf_counter() - began) * 1e3
        tensors[name] = [tensor.detach().cpu() for tensor in out]
    slowest = max(times, key=times.__getitem__)
    figure = {"slowest call that is the first of its kind, ms": round(times[slowest], 1)}
    return tensors, {**figure, "slowest call": slowest}


def is_same(tensor, wanted, *, is_exact):
    """True for equal bits, or for close numbers where another candidate may have computed them."""
    if is_exact:
        return torch.equal(tensor, wanted)
    return torch.allclose(tensor.float(), wanted.float(), rtol=2e-2, atol=2e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=("quack", "flash_attn"))
    parser.add_argument("which", choices=("original", "package"))
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--times", action="store_true", help="only measure a call, for later runs")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    is_package = args.which == "package"
    folder = HERE / f"captured_{args.library}"
    sys.path.insert(0, str(folder))
    own = (
        load_package(folder)
        if is_package
        else lambda name: importlib.import_module(f"{args.library}.{name}")
    )
    module = importlib.import_module("calls")
    for name in module.MODULES:
        own(name)
    calls = module.Calls(own, tuned=is_package)
    first = calls.first()
    figures = {"import, s": round(time.perf_counter() - began, 2), **measured(first)}
    times = args.results / f"{args.library}-{args.which}.times"
    if args.times:
        with times.open("a") as file:
            file.write(f"{figures['later call, us']}\n")
        print(json.dumps(figures))
        return
    if times.is_file():
        values = [*map(float, times.read_text().split())]
        # Other work on the machine only ever adds to a time.
        figures |= {"later call, us": min(values), "in processes, us": values}
    figures |= calls.facts()
    tensors, slowest = results(calls)
    figures |= slowest
    if not is_package:
        torch.save([tensors, figures], args.results / f"{args.library}.pt")
        print(json.dumps(figures))
        return
    wanted, original = torch.load(args.results / f"{args.library}.pt")
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
        save(f"captured_{args.library}", report)


if __name__ == "__main__":
    main()

"""What the compiler launcher adds to a compilation, and what a look-up in the object cache costs.

Two units: a trivial one, and one that includes all of `torch/all.h` when there is a Torch. Each is
compiled by the compiler alone, through the launcher with an empty cache, and through the launcher
when the cache has it, in turn, in one run of this script.

    python benchmarks/launcher.py [--runs 20] [--save] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import save, table

from kbuild.build import launcher
from kbuild.runtime.unit_settings import LauncherSettings

TRIVIAL = "int answer() { return 42; }\n"
TORCH = "#include <torch/all.h>\nint answer() { return 42; }\n"


def torch_flags() -> list[str]:
    """Include folders of the Torch beside this Python."""
    spec = importlib.util.find_spec("torch")
    root = Path(str(spec.origin)).parent / "include"
    return [f"-isystem{root}", f"-isystem{root}/torch/csrc/api/include"]


def compiler(folder: Path, name: str, text: str, flags: list[str]) -> list[str]:
    """The command line of one unit, as CMake writes it."""
    source = folder / f"{name}.cpp"
    source.write_text(text)
    target = folder / f"{name}.o"
    outputs = ["-MD", "-MT", str(target), "-MF", f"{target}.d", "-o", str(target)]
    cxx = shutil.which("c++") or sys.exit("needs a C++ compiler")
    return [cxx, "-std=c++20", "-fPIC", *flags, *outputs, "-c", str(source)]


def milliseconds(command: list[str], env: dict[str, str]) -> float:
    """Wall time of one process, which must succeed."""
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True)  # noqa: TID251
    return (time.perf_counter() - began) * 1000


def measure(folder: Path, command: list[str], runs: int) -> dict[str, float]:
    """Medians of the three ways."""
    settings = LauncherSettings(run=str(folder), cache=str(folder / "cache"), memory=16000)
    env = {**os.environ, **settings.to_environment()}
    launched = [sys.executable, "-I", "-S", launcher.__file__, "CXX", *command]
    times: dict[str, list[float]] = {"compiler": [], "miss": [], "hit": []}
    for _ in range(runs):
        shutil.rmtree(folder / "cache" / "objects", ignore_errors=True)
        times["compiler"].append(milliseconds(command, env))
        times["miss"].append(milliseconds(launched, env))
        times["hit"].append(milliseconds(launched, env))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/launcher.json"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    units = {"trivial": (TRIVIAL, [])}
    if importlib.util.find_spec("torch"):
        units["torch/all.h"] = (TORCH, torch_flags())
    rows: list[dict[str, object]] = []
    milliseconds_of: dict[str, dict[str, float]] = {}
    for name, (text, flags) in units.items():
        with tempfile.TemporaryDirectory() as folder:
            command = compiler(Path(folder), name.replace("/", "_"), text, flags)
            runs = args.runs if name == "trivial" else max(1, args.runs // 10)
            found = measure(Path(folder), command, runs)
        milliseconds_of[name] = found
        # A first compilation also hashes what it read: allow 2 % of a unit that reads much.
        allowed = 50 + found["compiler"] * 0.02
        overhead = found["miss"] - found["compiler"]
        rows.append({"what": f"{name}: ms added to a miss", "value": overhead, "target": allowed})
        rows.append({"what": f"{name}: ms of a hit", "value": found["hit"], "target": 100.0})
    if args.save:
        save("launcher", {"milliseconds": milliseconds_of, "targets": rows})
    print(json.dumps(milliseconds_of, indent=2) if args.json else table(rows))


if __name__ == "__main__":
    main()

"""The time that a first build says is left, beside the time that it then takes.

    python benchmarks/time_left.py [--save] [--json] [PROJECT...]

Builds five examples with the toolchains that are there, but without objects, images and facts of
earlier builds, and reads the lines of progress as they come. `first` is the share of the time
after which the first figure was shown; `worst` the most that a figure was too high or too low, as
a factor of at least 1. Figures for less than five seconds are left out: they are rounded.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import save, table

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROJECTS = {
    "relu": ("*-cpu-x86_64-linux", "torch213-*-cu130-x86_64-linux"),
    "relu-stable-abi": ("*-x86_64-linux",),
    "relu-tvm-ffi": ("*-x86_64-linux",),
    "rmsnorm-triton": ("*-cu130-x86_64-linux",),
    "elementwise-tilelang": ("*-x86_64-linux",),
}
"""Example -> the variants that are built."""
LEFT = re.compile(r"about (?:(?P<h>\d+) h )?(?P<n>\d+) (?P<unit>s|min) left")
SHORTEST_S = 5.0


def estimates(project: Path, variants: Sequence[str], cache: Path) -> tuple[Any, float]:
    """Return `(seconds since the start, seconds left)` of each figure, and how long it took."""
    words = [word for name in variants for word in ("--variant", name)]
    command = [sys.executable, "-m", "kbuild", "build", str(project), "--driver", "local", *words]
    env = {**os.environ, "KBUILD_CACHE_DIR": str(cache)}
    began = time.monotonic()
    shown, lines = [], []
    with subprocess.Popen(  # noqa: TID251
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr or ():
            lines.append(line)
            if found := LEFT.search(line):
                scale = 60 if found["unit"] == "min" else 1
                left = 3600 * int(found["h"] or 0) + scale * int(found["n"])
                shown.append((time.monotonic() - began, float(left)))
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{''.join(lines)}")
    return shown, time.monotonic() - began


def measure(name: str, store: Path) -> dict[str, Any]:
    """Build one example; `store` has the toolchains."""
    with tempfile.TemporaryDirectory() as folder:
        project, cache = Path(folder, name), Path(folder, "cache")
        shutil.copytree(EXAMPLES / name, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
        cache.mkdir()
        shutil.copytree(store, cache / "store", symlinks=True, copy_function=os.link)
        shown, took = estimates(project, PROJECTS[name], cache)
    factors = [
        max(left / (took - after), (took - after) / left)
        for after, left in shown
        if took - after >= SHORTEST_S and left
    ]
    return {
        "seconds": round(took, 1),
        "figures": [(round(after, 1), left, round(took - after, 1)) for after, left in shown],
        "first": round(shown[0][0] / took, 2) if shown else 1.0,
        "worst": round(max(factors, default=1.0), 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", nargs="*", default=list(PROJECTS))
    parser.add_argument("--save", action="store_true", help="write results/time_left.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    own = os.environ.get("KBUILD_CACHE_DIR") or Path.home() / ".cache/kbuild"
    result: dict[str, Any] = {name: measure(name, Path(own, "store")) for name in args.project}
    worst = max(one["worst"] for one in result.values())
    targets = [{"what": "time left, worst factor", "value": worst, "target": 2.0}]
    if args.save:
        save("time_left", {"projects": result, "targets": targets})
    print(json.dumps(result) if args.json else f"{json.dumps(result, indent=1)}\n{table(targets)}")


if __name__ == "__main__":
    main()

"""`examples/relu` over the whole matrix that wheels serve: from nothing, again, and from the cache.

One project, one cache, in one run of this script: an empty cache (toolchains are fetched and
everything is compiled), nothing changed, and the build folders removed with the cache kept.

    python benchmarks/matrix.py [--save] [--json]

Needs a package index that pip is set up for, and a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import save, table

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"


def children() -> float:
    """CPU seconds of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(project: Path, cache: Path) -> dict[str, float]:
    """Wall and CPU seconds, variants, objects and those of them that the cache had."""
    argv = [sys.executable, "-m", "kbuild", "build", str(project), "--json"]
    env = {**os.environ, "KBUILD_CACHE_DIR": str(cache)}
    began, used = time.perf_counter(), children()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)  # noqa: TID251
    seconds, used = time.perf_counter() - began, children() - used
    if done.returncode:
        sys.exit(f"kbuild build failed:\n{done.stdout}\n{done.stderr}")
    made = [one for one in json.loads(done.stdout)["variants"] if one["path"]]
    return {
        "wall": seconds,
        "cpu": used,
        "variants": len(made),
        "objects": sum(one["objects"] for one in made),
        "from_cache": sum(one["from_cache"] for one in made),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/matrix.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        project, cache = Path(name) / "relu", Path(name) / "cache"
        shutil.copytree(RELU, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
        cold, unchanged = build(project, cache), build(project, cache)
        for folder in ("build", ".kbuild"):
            shutil.rmtree(project / folder)
        warm = build(project, cache)
    result = {
        "from nothing": cold,
        "unchanged": unchanged,
        "from the cache": warm,
        "targets": [
            {"what": "unchanged, seconds", "value": unchanged["wall"], "target": 0.5},
        ],
        "warm / cold CPU": warm["cpu"] / cold["cpu"],
    }
    if args.save:
        save("matrix", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

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
import tempfile
from pathlib import Path

from own_peak import Ran, kbuild, target
from report import save, table

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"


def children() -> float:
    """CPU seconds of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(project: Path, cache: Path) -> dict[str, float]:
    """Wall and CPU seconds, variants, objects and those of them that the cache had.

    The peak of kbuild itself is in MB.
    """
    used = children()
    ran = kbuild(
        ["build", str(project), "--driver", "local"], {**os.environ, "KBUILD_CACHE_DIR": str(cache)}
    )
    made = [one for one in ran.answer["variants"] if one["path"]]
    return {
        "wall": ran.wall,
        "cpu": children() - used,
        "peak": ran.peak,
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
            target("relu, whole matrix", Ran(None, 0.0, cold["peak"])),
        ],
        "warm / cold CPU": warm["cpu"] / cold["cpu"],
    }
    if args.save:
        save("matrix", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

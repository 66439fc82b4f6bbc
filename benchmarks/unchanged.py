"""What a build with nothing to do takes, next to that of another kbuild in the same run.

    python benchmarks/unchanged.py --before PYTHON [--rounds 30] [--save] [--json] [-- ARGUMENTS]

`PYTHON` is the interpreter of the other kbuild. Each builds its copy of `examples/relu` once, by
default for the CPU and the installed Torch; `ARGUMENTS` of `kbuild build` may say otherwise. Then
both build again in turn, and `check-config` answers from its cache. Quote the ratios of processor
times: a busy machine has other seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from report import save, table

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"
MOST = 1.1
"""How much longer it may take."""
DEFAULT = ["--backend", "cpu", "--toolchain", "host", "--driver", "local"]


def ran(argv: list[str], env: Mapping[str, str], expect: str = "") -> tuple[float, float]:
    """Wall and processor seconds of a command that succeeds and says `expect`."""
    used, began = _children(), time.perf_counter()
    done = subprocess.run(  # noqa: TID251 - elsewhere: a kbuild that lies here is not meant
        argv,
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
        cwd=env["KBUILD_CACHE_DIR"],
    )
    wall, cpu = time.perf_counter() - began, _children() - used
    if done.returncode or expect not in done.stdout + done.stderr:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
    return wall, cpu


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Exit code 1 when it takes too much longer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", required=True, help="the interpreter of the other kbuild")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("arguments", nargs="*", default=DEFAULT)
    options = parser.parse_args()
    times: dict[str, dict[str, list[tuple[float, float]]]] = {"build": {}, "check-config": {}}
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for name, python in (("before", options.before), ("now", sys.executable)):
            place = Path(folder, name)
            shutil.copytree(RELU, place / "relu", ignore=shutil.ignore_patterns("build", ".kbuild"))
            (place / "cache").mkdir()
            env = {**os.environ, "KBUILD_CACHE_DIR": str(place / "cache")}
            # The first build writes it: both are compared as they are once they were used.
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            verb = [python, "-m", "kbuild"]
            sides[name] = (verb, str(place / "relu"), env)
            ran([*verb, "build", str(place / "relu"), *options.arguments], env, "built")
        for turn in range(options.rounds + 1):
            for name, (verb, project, env) in sides.items():
                build = ran([*verb, "build", project, *options.arguments], env, "up-to-date")
                check = ran([*verb, "check-config", project], env)
                if turn:  # the first round only warms the disk
                    times["build"].setdefault(name, []).append(build)
                    times["check-config"].setdefault(name, []).append(check)
    medians = {
        f"{verb}, {name}": {
            "wall": statistics.median(wall for wall, _ in found),
            "cpu": statistics.median(cpu for _, cpu in found),
        }
        for verb, by_side in times.items()
        for name, found in by_side.items()
    }
    targets = [
        {
            "what": f"{verb} with nothing to do, now / before, CPU",
            "value": medians[f"{verb}, now"]["cpu"] / medians[f"{verb}, before"]["cpu"],
            "target": MOST,
        }
        for verb in times
    ]
    result = {"rounds": options.rounds, "medians": medians, "targets": targets}
    if options.save:
        sys.argv = ["PYTHON" if word == options.before else word for word in sys.argv]
        save("unchanged", result)
    print(json.dumps(result, indent=1) if options.json else table(targets))
    return int(any(row["value"] > row["target"] for row in targets))


if __name__ == "__main__":
    sys.exit(main())

"""What a build with nothing to do takes, beside importing the library that reads `build.toml`.

    python benchmarks/unchanged.py [--rounds 20] [--save] [--json]

`examples/relu` is built once, for the CPU and the installed Torch; eleven variants are for other
releases and skipped. Then it is built again, with nothing to do: as always; with a Nix in front of
PATH that is installed and cannot be used; and the first time after something changed, when the
build has to look at everything itself. All take turns with `python -c "import pydantic.main"` and
`check-config`. Quote the ratios of processor times: a busy machine has other seconds.

Then a project of 500 sources and 26 variants is generated, and left as a build would leave it
(`standin_build.py`); what is measured is the build after that, both ways.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plan
from report import save, table

ROOT = Path(__file__).resolve().parents[1]
RELU = ROOT / "examples" / "relu"
BUILD = ("build", "relu", "--backend", "cpu")
LIMIT, NO_DIFFERENCE = 2.5, 1.1
SOURCES, HEADERS, VARIANTS = 500, 300, 26
LARGE_SECONDS, LARGE_MEGABYTES = 2.0, 150.0
PYDANTIC, BUILT = "import pydantic.main", "build"
WITH_NIX, LOOKING, CHECK = "build, unusable Nix", "build that looks", "check-config"
NIX = """#!/bin/sh
case "$*" in
--version) echo "nix (Nix) 2.28.3" ;;
*ping*) echo "error: cannot connect to socket at '/nix/var/nix/daemon-socket/socket'" >&2; exit 1 ;;
*) echo "{}" ;;
esac
"""


def ran(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], expect: str = ""
) -> dict[str, float]:
    """Wall and processor seconds of a command that succeeds and says `expect`."""
    used, began = _children(), time.perf_counter()
    done = subprocess.run(  # noqa: TID251 - a measurement starts processes itself
        argv, env=dict(env), cwd=folder, capture_output=True, text=True, check=False
    )
    wall, cpu = time.perf_counter() - began, _children() - used
    if done.returncode or expect not in done.stdout + done.stderr:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
    return {"wall": wall, "cpu": cpu}


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def prepared(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A built project, and the environments without a Nix and with one."""
    shutil.copytree(RELU, folder / "relu", ignore=shutil.ignore_patterns("build", ".kbuild"))
    (folder / "relu" / "flake.lock").write_text("{}")  # somebody has built it with Nix before
    nix = folder / "programs" / "nix"
    nix.parent.mkdir()
    nix.write_text(NIX)
    nix.chmod(0o755)
    plain = {**os.environ, "KBUILD_CACHE_DIR": str(folder / "cache"), "KBUILD_TOOLCHAIN": "auto"}
    plain["PYTHONPATH"] = str(ROOT)
    plain.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kbuild has bytecode
    return plain, {**plain, "PATH": f"{nix.parent}{os.pathsep}{plain['PATH']}"}


def measured(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Medians by case."""
    plain, with_nix = prepared(folder)
    kbuild = (sys.executable, "-m", "kbuild")
    build, nothing_to_do = (*kbuild, *BUILD), "up-to-date"
    ran(build, folder, plain, "built")
    first = ran(build, folder, with_nix, "cannot connect")

    def looking() -> dict[str, float]:
        (folder / "relu/.kbuild/unchanged").unlink(missing_ok=True)
        return ran(build, folder, plain, nothing_to_do)

    cases: dict[str, Callable[[], dict[str, float]]] = {
        PYDANTIC: lambda: ran((sys.executable, "-c", PYDANTIC), folder, plain),
        LOOKING: looking,
        BUILT: lambda: ran(build, folder, plain, nothing_to_do),
        WITH_NIX: lambda: ran(build, folder, with_nix, nothing_to_do),
        CHECK: lambda: ran((*kbuild, "check-config", "relu"), folder, plain),
    }
    times: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, run in cases.items():
            if name in {BUILT, WITH_NIX}:  # the record is of another PATH, or was removed
                run()
            found = run()
            if turn:  # the first round only warms the disk
                times[name].append(found)
    medians = {
        name: {kind: statistics.median(one[kind] for one in found) for kind in ("wall", "cpu")}
        for name, found in times.items()
    }
    return {**medians, "build, unusable Nix, the first time": first}


def large(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of a large project: of the build that looks, and of the one after it."""
    project = folder / "large"
    plan.generate(project, SOURCES, HEADERS)
    env = {**os.environ, "KBUILD_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    build, stand_in = ("build", str(project)), (str(ROOT / "benchmarks/standin_build.py"),)
    plan.run(build, env, stand_in)
    if len([*project.glob("build/*/metadata.json")]) != VARIANTS:
        sys.exit(f"there are not {VARIANTS} variants")
    found: dict[str, list[dict[str, float]]] = {LOOKING: [], BUILT: []}
    for _ in range(rounds):
        (project / ".kbuild/unchanged").unlink(missing_ok=True)
        found[LOOKING].append(plan.run(build, env, stand_in))
        if not (project / ".kbuild/unchanged").is_file():
            sys.exit("the build that looks found something to do")
        found[BUILT].append(plan.run(build, env))
    return {
        name: {kind: statistics.median(one[kind] for one in runs) for kind in runs[0]}
        for name, runs in found.items()
    }


def targets(
    medians: Mapping[str, Mapping[str, float]], large: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Ratios of processor seconds; of the large project seconds and MB."""
    size = f"{SOURCES} sources x {VARIANTS}"
    pairs = (
        (BUILT, PYDANTIC, LIMIT),
        (WITH_NIX, BUILT, NO_DIFFERENCE),
    )
    ratios = [
        {"what": f"{what} / {other}", "value": medians[what]["cpu"] / medians[other]["cpu"]}
        | {"target": target}
        for what, other, target in pairs
    ]
    absolute = [
        {"what": f"{size}, {name}, {unit}", "value": found[kind], "target": target}
        for name, found in large.items()
        for kind, unit, target in (("wall", "s", LARGE_SECONDS), ("peak", "MB", LARGE_MEGABYTES))
    ]
    return [*ratios, *absolute]


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = measured(Path(folder), options.rounds)
        of_large = large(Path(folder), options.rounds)
    result = {"rounds": options.rounds, "medians": medians, "large": of_large}
    result["targets"] = targets(medians, of_large)
    if options.save:
        save("unchanged", result)
    print(json.dumps(result, indent=1) if options.json else table(result["targets"]))
    return int(any(row["value"] > row["target"] for row in result["targets"]))


if __name__ == "__main__":
    sys.exit(main())

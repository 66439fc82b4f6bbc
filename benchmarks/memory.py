"""Eight units of about 3 GB each under kbuild's memory budget, beside hand-chosen `ninja -j`.

The units are generated (`heavy.py`) and added to `examples/relu-stable-abi`. With one cache:
- outgrown: `--jobs`; the weights that are recorded are of small sources, which then became heavy;
- first: as many jobs as kbuild chooses; a new workspace, nothing recorded;
- again: `--jobs`; every source edited, weights recorded;
- by hand: the same compile commands by plain ninja, with those `-j` that fit into the budget.

kbuild's seconds are those of the whole command, configuring and checking included; ninja's are
those of compiling and linking. Nothing comes from a cache: each round edits every source.

    python benchmarks/memory.py [--unit-gb 3] [--memory 20G] [--jobs 8] [--by-hand N ...] [--save]

Needs Linux, and an environment with kbuild, torch and ninja (`pip install -e '.[dev]'`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavy import rows_for, source
from own_peak import Ran, kbuild, target
from processes import now, oom_kills, sampling
from report import save, table

from kbuild.runtime.budget import memory_budget
from kbuild.runtime.quantities import parse_memory

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "relu-stable-abi"
SOURCES = ("torch-ext/torch_binding.cpp", "relu_cpu/relu_cpu.cpp")
UNITS = 8
BY_HAND = (2, 4, 6)
LIGHT = 2
"""Rows of a unit before it became heavy."""
MIB, MEGABYTE, GIGABYTE = 1 << 20, 1e6, 1e9


@dataclass(frozen=True)
class Bench:
    """A copy of the example with the heavy units, and a cache."""

    folder: Path
    jobs: int
    memory: str | None
    """What `--memory` gets; kbuild's default when None."""

    @property
    def project(self) -> Path:
        """The project."""
        return self.folder / "relu-stable-abi"

    def create(self) -> None:
        """Copy the example and name the units in its `build.toml`."""
        shutil.copytree(EXAMPLE, self.project, ignore=shutil.ignore_patterns("build", ".kbuild"))
        names = ", ".join(f'"heavy/unit{number}.cpp"' for number in range(UNITS))
        settings = self.project / "build.toml"
        text = settings.read_text()
        own = 'src = ["relu_cpu/relu_cpu.cpp"]'
        if own not in text:
            sys.exit(f"{EXAMPLE / 'build.toml'} has no line {own}")
        settings.write_text(text.replace(own, f'src = ["relu_cpu/relu_cpu.cpp", {names}]'))
        (self.project / "heavy").mkdir()

    def edit(self, rows: int, stamp: str) -> None:
        """Change every source."""
        for number in range(UNITS):
            path = self.project / "heavy" / f"unit{number}.cpp"
            path.write_text(source(f"heavy{number}", rows, stamp))
        for name in SOURCES:
            (self.project / name).write_text(f"// {stamp}\n{(EXAMPLE / name).read_text()}")

    def forget(self) -> None:
        """A new workspace; no unit is known."""
        for folder in (self.project / ".kbuild", self.project / "build"):
            shutil.rmtree(folder)
        shutil.rmtree(self.folder / "cache" / "units")

    def build(self, jobs: int | None = None) -> dict[str, Any]:
        """One `kbuild build`; with kbuild's own number of jobs when None."""
        arguments = ["build", str(self.project), "--backend", "cpu", "--toolchain", "host"]
        arguments += ["--jobs", str(jobs)] if jobs else []
        arguments += ["--memory", self.memory] if self.memory else []
        env = {**os.environ, "KBUILD_CACHE_DIR": str(self.folder / "cache")}
        kills = oom_kills()
        with sampling(os.getpid()) as sampled:
            ran = kbuild(arguments, env)
        units = self.units()
        if any(unit["cache"] == "hit" for unit in units.values()):
            sys.exit("an object came from the cache: nothing was measured")
        heavy = [unit for name, unit in units.items() if name.startswith("heavy/")]
        return {
            "wall": ran.wall,
            "peak of kbuild MB": ran.peak,
            "oom kills": oom_kills() - kills + sum(1 for unit in heavy if unit.get("killed")),
            "summed MB": sampled.megabytes,
            "compilers": sampled.compilers,
            "unit peak MB": max(unit["peak"] for unit in heavy) * MIB / MEGABYTE,
            "unit seconds of CPU": sum(unit["user"] + unit["system"] for unit in heavy) / UNITS,
            "weights MB": sorted({round(unit["weight"] * MIB / MEGABYTE) for unit in heavy}),
            "waited": sum(unit["waited"] for unit in heavy),
            "paused": sum(unit["paused"] for unit in heavy),
            "restarts": sum(unit.get("restarts", 0) for unit in heavy),
        }

    def units(self) -> dict[str, dict[str, Any]]:
        """What the last build's log says, by source."""
        log = self.project / ".kbuild" / "report" / "units.jsonl"
        records = [json.loads(line) for line in log.read_text().splitlines()]
        return {record["unit"]: record for record in records if "unit" in record}

    def by_hand(self, jobs: int) -> dict[str, float]:
        """The same commands by ninja, outside of any run: the launcher becomes the compiler."""
        (tree,) = self.project.glob(".kbuild/*/tree/build.ninja")
        ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        command = [str(ninja), "-C", str(tree.parent)]
        subprocess.run([*command, "-t", "clean"], check=True, capture_output=True)  # noqa: TID251
        kills = oom_kills()
        with sampling(os.getpid()) as sampled:
            began = now()
            subprocess.run([*command, f"-j{jobs}"], check=True, capture_output=True)  # noqa: TID251
            wall = now() - began
        return {"wall": wall, "summed MB": sampled.megabytes, "oom kills": oom_kills() - kills}


def measured(
    bench: Bench, rows: int, budget: float, hands: Sequence[int], *, outgrown: bool
) -> dict[str, Any]:
    """All rounds. `budget` in MB decides which `-j` of `hands` are not dared."""
    bench.create()
    bench.edit(LIGHT, "light")
    bench.build(bench.jobs)
    result: dict[str, Any] = {}
    if outgrown:
        bench.edit(rows, "outgrown")
        result["outgrown"] = bench.build(bench.jobs)
    bench.edit(rows, "first")
    bench.forget()
    result["first"] = bench.build()
    bench.edit(rows, "again")
    result["again"] = bench.build(bench.jobs)
    unit = result["again"]["unit peak MB"]
    by_hand: dict[str, Any] = {}
    for jobs in hands:
        fits = jobs * unit <= budget
        by_hand[f"-j{jobs}"] = bench.by_hand(jobs) if fits else "skipped: does not fit"
    return result | {"by hand": by_hand}


def targets(found: Mapping[str, Any], budget: float, gigabytes: float) -> list[dict[str, Any]]:
    """What was measured beside what was promised."""
    names = [name for name in ("outgrown", "first", "again") if name in found]
    builds = [found[name] for name in names]
    walls = [one["wall"] for one in found["by hand"].values() if isinstance(one, dict)]
    unit = found["again"]["unit peak MB"]
    over = max(one["summed MB"] - budget for one in builds)
    rows: list[dict[str, Any]] = [
        {"what": "kills for want of memory", "value": sum(one["oom kills"] for one in builds)}
        | {"target": 0},
        {"what": "unit peak off by, GB", "value": abs(unit / 1e3 - gigabytes)}
        | {"target": 0.1 * gigabytes},
        {"what": "above the budget at most, units", "value": max(0.0, over) / unit, "target": 1},
    ]
    rows += [
        {"what": f"{name} / best by hand", "value": found[name]["wall"] / min(walls), "target": 1.2}
        for name in names
    ]
    peak = max(one["peak of kbuild MB"] for one in builds)
    return [*rows, target("heavy units", Ran(None, 0.0, peak))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--unit-gb", type=float, default=3.0, help="GB of one unit (3)")
    parser.add_argument("--memory", help="kbuild's budget, e.g. 20G (default: kbuild's own)")
    parser.add_argument("--jobs", type=int, default=UNITS)
    parser.add_argument("--no-outgrown", action="store_true", help="leave out that round")
    parser.add_argument("--by-hand", type=int, nargs="+", default=BY_HAND, metavar="N")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/memory.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    budget = (parse_memory(args.memory) if args.memory else memory_budget()) * MIB / MEGABYTE
    rows, probes = rows_for(args.unit_gb * GIGABYTE / MEGABYTE)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(
            Bench(Path(folder), args.jobs, args.memory),
            rows,
            budget,
            args.by_hand,
            outgrown=not args.no_outgrown,
        )
    result = {
        "unit GB": args.unit_gb,
        "rows": rows,
        "probes": [vars(probe) for probe in probes],
        "jobs": args.jobs,
        "budget MB": budget,
        **found,
        "targets": targets(found, budget, args.unit_gb),
    }
    if args.save:
        save("memory", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

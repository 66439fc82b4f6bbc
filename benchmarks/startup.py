"""How long kbuild takes to answer, next to what Python itself takes.

python benchmarks/startup.py            measure and print a table
python benchmarks/startup.py --json     the same as JSON
python benchmarks/startup.py --save     also write benchmarks/results/startup.json

The commands take turns, so that a busy moment of the machine hits all of them. The figure is the
median of the processor times, those of `git` and of compilers that are asked included; each ratio
is to its baseline in the same rounds. `python` is the interpreter that runs this file, `kbuild` the
installed console script beside it.

The commands on whole projects are those of somebody who has run them before (`first` is the first
round), on examples and on a generated project of 500 sources and 26 variants (`plan.py`); nothing
is built there. `unchanged.py` measures builds that find nothing to do.
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import plan
from report import save

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PROJECT = EXAMPLES / "relu"
PROJECTS = ("relu", "all-reduce-norm", "rmsnorm-triton", "attention-triton")
SOURCES, HEADERS = 500, 300
NOTHING, PYDANTIC = "python -c pass", "python -c 'import pydantic.main'"
COMMANDS: Mapping[str, tuple[Sequence[str], float]] = {
    "list-variants": ((), 4.5),
    "plan": ((), 8.0),
    "check": (("--no-load",), 8.0),
    "fill-card": ((), 8.0),
}
"""Options, and the largest ratio to `PYDANTIC`."""


@dataclass(frozen=True)
class Case:
    """One command, and what it is measured against."""

    name: str
    argv: tuple[str, ...]
    baseline: str = ""
    limit: float = 0.0
    """Largest ratio that is good enough; 0 for none."""
    cold: bool = False
    """True when kbuild's cache is emptied before each run."""


@dataclass(frozen=True)
class Row:
    """A measured command."""

    name: str
    first: float
    milliseconds: float
    baseline: str
    ratio: float
    limit: float


def cases(python: str, kbuild: str, large: Path) -> tuple[Case, ...]:
    """What is measured; `large` is the generated project."""
    check = (kbuild, "check-config", "--quiet", str(PROJECT))
    projects = {name: EXAMPLES / name for name in PROJECTS} | {large.name: large}
    return (
        Case(NOTHING, (python, "-c", "pass")),
        Case(PYDANTIC, (python, "-c", "import pydantic.main")),
        Case("kbuild --help", (kbuild, "--help"), NOTHING, 2.5),
        Case("kbuild --version", (kbuild, "--version"), NOTHING, 2.5),
        Case("check-config, first time", check, PYDANTIC, cold=True),
        *(
            Case(f"check-config {name}", (kbuild, "check-config", str(path)), PYDANTIC, 1.2)
            for name, path in projects.items()
        ),
        *(
            Case(f"{command} {name}", (kbuild, command, str(path), *words), PYDANTIC, limit)
            for command, (words, limit) in COMMANDS.items()
            for name, path in projects.items()
        ),
    )


def measure(todo: Sequence[Case], rounds: int, cache: Path) -> Mapping[str, list[float]]:
    """Processor seconds of every run by case name, the cases in turn; the first warms the disk."""
    env = os.environ | {"KBUILD_CACHE_DIR": str(cache)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kbuild has bytecode
    times: dict[str, list[float]] = {case.name: [] for case in todo}
    for _ in range(rounds + 1):
        for case in todo:
            times[case.name].append(_time(case, env, cache))
    return times


def _time(case: Case, env: Mapping[str, str], cache: Path) -> float:
    if case.cold:
        cold = cache.with_name("cold")
        shutil.rmtree(cold, ignore_errors=True)
        env = {**env, "KBUILD_CACHE_DIR": str(cold)}
    began = _children()
    subprocess.run(  # noqa: TID251 - a measurement starts processes itself
        case.argv, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return _children() - began


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rows(todo: Sequence[Case], times: Mapping[str, list[float]]) -> list[Row]:
    """The medians and their ratios."""
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    return [
        Row(
            case.name,
            round(times[case.name][0] * 1000, 1),
            round(medians[case.name] * 1000, 1),
            case.baseline,
            round(medians[case.name] / medians[case.baseline], 2) if case.baseline else 1.0,
            case.limit,
        )
        for case in todo
    ]


def table(found: Sequence[Row]) -> str:
    """The rows in columns."""
    lines = [f"{'command':<34}{'median':>10}{'ratio':>8}{'limit':>8}  to"]
    for row in found:
        limit = f"{row.limit:.1f}" if row.limit else "-"
        ratio = f"{row.ratio:.2f}" if row.baseline else "-"
        time_ = f"{row.milliseconds:.1f} ms"
        lines.append(f"{row.name:<34}{time_:>10}{ratio:>8}{limit:>8}  {row.baseline}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Exit code 1 when a ratio is above its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="measured rounds (default: 30)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/startup.json")
    parser.add_argument("--kbuild", help="console script (default: beside this interpreter)")
    arguments = parser.parse_args()
    kbuild = arguments.kbuild or str(Path(sys.executable).with_name("kbuild"))
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder, f"{SOURCES}-x-26")
        plan.generate(large, SOURCES, HEADERS)
        shutil.copy(PROJECT / "CARD.md", large)
        with (large / "build.toml").open("a") as settings:
            settings.write('\n[general.hub]\nrepo-id = "owner/large"\n')
        todo = cases(sys.executable, kbuild, large)
        found = rows(todo, measure(todo, arguments.rounds, Path(folder, "cache")))
    result = {"rounds": arguments.rounds, "rows": [asdict(row) for row in found]}
    if arguments.save:
        save("startup", result)
    print(json.dumps(result, indent=1) if arguments.json else table(found))
    return int(any(row.limit and row.ratio > row.limit for row in found))


if __name__ == "__main__":
    sys.exit(main())

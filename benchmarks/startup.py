"""How long kbuild takes to answer, next to what Python itself takes.

python benchmarks/startup.py            measure and print a table
python benchmarks/startup.py --json     the same as JSON
python benchmarks/startup.py --save     also write benchmarks/results/startup.json

The commands take turns, so that a busy moment of the machine hits all of them. The figure is the
median of the wall times; each ratio is to its baseline in the same rounds. `python` is the
interpreter that runs this file, `kbuild` the installed console script beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from report import save

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "examples" / "relu"


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
    milliseconds: float
    baseline: str
    ratio: float
    limit: float


def cases(python: str, kbuild: str) -> tuple[Case, ...]:
    """What is measured."""
    nothing, pydantic = "python -c pass", "python -c 'import pydantic'"
    check = (kbuild, "check-config", "--quiet", str(PROJECT))
    return (
        Case(nothing, (python, "-c", "pass")),
        Case(pydantic, (python, "-c", "import pydantic")),
        Case("kbuild --help", (kbuild, "--help"), nothing, 2.5),
        Case("kbuild --version", (kbuild, "--version"), nothing, 2.5),
        Case("check-config, cached", check, pydantic, 1.6),
        Case("check-config, first time", check, pydantic, cold=True),
        Case("list-variants", (kbuild, "list-variants", str(PROJECT)), pydantic),
    )


def measure(todo: Sequence[Case], rounds: int, cache: Path) -> Mapping[str, list[float]]:
    """Seconds of every run by case name, the cases in turn."""
    env = os.environ | {"KBUILD_CACHE_DIR": str(cache)}
    times: dict[str, list[float]] = {case.name: [] for case in todo}
    for turn in range(rounds + 1):
        for case in todo:
            seconds = _time(case, env, cache)
            if turn:  # the first round only warms the disk
                times[case.name].append(seconds)
    return times


def _time(case: Case, env: Mapping[str, str], cache: Path) -> float:
    if case.cold:
        shutil.rmtree(cache, ignore_errors=True)
    began = time.perf_counter()
    subprocess.run(  # noqa: TID251 - a measurement starts processes itself
        case.argv, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def rows(todo: Sequence[Case], times: Mapping[str, list[float]]) -> list[Row]:
    """The medians and their ratios."""
    medians = {name: statistics.median(found) for name, found in times.items()}
    return [
        Row(
            case.name,
            round(medians[case.name] * 1000, 1),
            case.baseline,
            round(medians[case.name] / medians[case.baseline], 2) if case.baseline else 1.0,
            case.limit,
        )
        for case in todo
    ]


def table(found: Sequence[Row]) -> str:
    """The rows in columns."""
    lines = [f"{'command':<28}{'median':>10}{'ratio':>8}{'limit':>8}  to"]
    for row in found:
        limit = f"{row.limit:.1f}" if row.limit else "-"
        ratio = f"{row.ratio:.2f}" if row.baseline else "-"
        time_ = f"{row.milliseconds:.1f} ms"
        lines.append(f"{row.name:<28}{time_:>10}{ratio:>8}{limit:>8}  {row.baseline}".rstrip())
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
    todo = cases(sys.executable, kbuild)
    with tempfile.TemporaryDirectory() as folder:
        found = rows(todo, measure(todo, arguments.rounds, Path(folder, "cache")))
    result = {"rounds": arguments.rounds, "rows": [asdict(row) for row in found]}
    if arguments.save:
        save("startup", result)
    print(json.dumps(result, indent=1) if arguments.json else table(found))
    return int(any(row.limit and row.ratio > row.limit for row in found))


if __name__ == "__main__":
    sys.exit(main())

"""What becomes of a hundred uploads that go wrong, and what uploads cost that go well.

python benchmarks/upload.py             run and print the table
python benchmarks/upload.py --save      also write benchmarks/results/upload.json
python benchmarks/upload.py --seeds 10  fewer

Each of the hundred goes to a Hub of its own (`tests/support/hub`: real HTTP on this machine), with
the real `huggingface_hub`. Faults come at points that a seed chooses: refusals, lost connections
before and after a commit was carried out, commits of others, and SIGKILL. It is tried until it
succeeds; then every byte of the repository is compared with the build. All along somebody looks at
the version branch after each change of a ref.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import save, table

from tests.support.hub.fixture import running_hub
from tests.support.hub.uploads import Fate, attempt, suffer, write_build, write_variant

FOURTEEN = (
    *(f"torch{t}-cxx11-cu{c}-{a}-linux" for t in (212, 213) for c in (126, 130, 132)
      for a in ("x86_64", "aarch64")),
    *("torch-cuda", "torch-rocm"),
)  # fmt: skip


def go_wrong(seeds: Sequence[int], scratch: Path, at_once: int) -> list[Fate]:
    """Every upload's fate, in the order of seeds."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda seed: suffer(seed, scratch / f"seed{seed}"), seeds))


def go_well(scratch: Path) -> dict[str, Any]:
    """Requests of an unchanged upload of 14 variants, and commits of one of 1,000 files."""
    source = random.Random(0)  # noqa: S311
    project = write_build(scratch / "project", source, FOURTEEN)
    for name in FOURTEEN:
        write_variant(project / "build", name, source, files=72)
    files = sum(1 for path in project.rglob("*") if path.is_file())
    with running_hub(scratch) as hub:
        first = _timed(hub, project)
        commits = len(hub.log.commits)
        hub.log.clear()
        second = _timed(hub, project)
        requests, again = len(hub.log.records), len(hub.log.commits)
    return {
        "files": files,
        "commits": commits,
        "seconds": first,
        "unchanged": {"requests": requests, "commits": again, "seconds": second},
    }


def _timed(hub: Any, project: Path) -> float:
    began = time.monotonic()
    code, said = attempt(hub, project)
    if code:
        raise SystemExit(said)
    return round(time.monotonic() - began, 2)


def summary(fates: Sequence[Fate]) -> dict[str, Any]:
    """The fault table: how often each kind came, and what became of the uploads that it came to."""
    kinds = sorted({kind for fate in fates for kind in fate.faults})
    fired = sum((Counter(fate.faults) for fate in fates), Counter())
    rows = {
        kind: {
            "fired": fired[kind],
            "uploads": sum(kind in fate.faults for fate in fates),
            "identical": sum(kind in fate.faults and fate.identical for fate in fates),
        }
        for kind in kinds
    }
    hit = [fate for fate in fates if fate.killed]
    rows["SIGKILL"] = {
        "fired": sum(fate.killed for fate in fates),
        "uploads": len(hit),
        "identical": sum(fate.identical for fate in hit),
    }
    return {
        "uploads": len(fates),
        "identical": sum(fate.identical for fate in fates),
        "incomplete variants seen": sum(len(fate.complaints) for fate in fates),
        "succeeded at once": sum(fate.tries == 1 for fate in fates),
        "most tries": max(fate.tries for fate in fates),
        "starts": dict(Counter(fate.start for fate in fates)),
        "faults": rows,
    }


def _print(told: dict[str, Any]) -> None:
    print(f"{'fault':<18} {'fired':>6} {'uploads':>8} {'identical':>10}")
    for kind, row in told["faults"].items():
        print(f"{kind:<18} {row['fired']:>6} {row['uploads']:>8} {row['identical']:>10}")
    print(f"\n{told['identical']} of {told['uploads']} repositories equal their build\n")
    wrong = told["uploads"] - told["identical"]
    well = told["well"]
    rows = (
        ("repositories that differ from the build", wrong, 0),
        ("incomplete variants seen on a version branch", told["incomplete variants seen"], 0),
        ("requests of an unchanged 14-variant upload", well["unchanged"]["requests"], 9),
        ("commits of an unchanged upload", well["unchanged"]["commits"], 0),
        (f"commits of an upload of {well['files']} files", well["commits"], 3),
    )
    print(table([{"what": w, "value": float(v), "target": float(t)} for w, v, t in rows]))


def main() -> int:
    """Run; exit code 1 when a check fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many uploads")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="uploads at a time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="keep the result")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbuild-upload-") as scratch:
        fates = go_wrong(range(args.seeds), Path(scratch), args.at_once)
        told = {**summary(fates), "well": go_well(Path(scratch, "well"))}
    if args.json:
        print(json.dumps(told, indent=1))
    else:
        _print(told)
    for fate in fates:
        if not fate.identical or fate.complaints:
            print(fate, file=sys.stderr)
    if args.save:
        save("upload", told)
    return 0 if told["identical"] == len(fates) and not told["incomplete variants seen"] else 1


if __name__ == "__main__":
    sys.exit(main())

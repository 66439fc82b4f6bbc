"""Do several runs of `kbuild tune` agree, and what do several GPUs gain?

Each run starts from nothing: a copy of the project without tables and journals. Compared are the
winners' times of all runs, and winners that differ, by the median of all times of all runs. With
`--device 0 --device all`, runs on all GPUs come after those on one. What the dispatcher makes of
the measured durations on more GPUs than there are is simulated: real scheduling, virtual time.

    python benchmarks/tune_repeatability.py --variant DIR --project DIR [--work DIR] [--save]
    python benchmarks/tune_repeatability.py --variant DIR --project DIR --cluster

With `--cluster`, each run is followed by one on a cluster on loopback, whose only worker has all
processors and GPUs of this machine.

The variant is one that `kbuild build --keep-all` made for this GPU and the Torch of this
interpreter. What a run measured is kept in `--work`, where the next command goes on.
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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from cluster import CREDENTIALS, Cluster  # noqa: E402

from kbuild.dsl.tune.host import Device, ProbeHost  # noqa: E402
from kbuild.dsl.tune.results import Journal  # noqa: E402
from kbuild.dsl.tune.workers import DeviceWorkers, WorkerSettings  # noqa: E402
from kbuild.ops.manifest import read_manifest  # noqa: E402
from kbuild.system.processes import LocalRunner  # noqa: E402
from tests.support.simulated_gpus import SimulatedGpu, SimulatedHost  # noqa: E402

Row = Mapping[str, Any]


def tune(
    project: Path, variant: Path, device: str, folder: Path, cluster: str = ""
) -> dict[str, Any]:
    """One run in a folder of its own: seconds, results, and what each process measured."""
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("tuned", ".kbuild", "build"))
    argv = [sys.executable, "-m", "kbuild", "tune", str(folder), "--variant", str(variant)]
    argv += ["--executor", cluster] if cluster else ["--python", sys.executable]
    if not cluster or device == "cpu":  # on a cluster, all GPUs
        argv += ["--device", device]
    argv += ["--json"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: TID251
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
    (answer,) = json.loads(done.stdout)["devices"]
    journal = next((folder / ".kbuild" / "tune").glob("*.jsonl")).read_text()
    units = [json.loads(line) for line in journal.splitlines() if '"done"' in line]
    return {
        "seconds": seconds,
        "device": answer["device"],
        "rows": answer["results"],
        "units": units,
    }


def place(row: Row) -> str:
    """What a row is for, as text."""
    dtypes = "/".join(dict.fromkeys(row["dtypes"].values()))
    return f"{row['op']} {row['launch']} {dtypes} {','.join(map(str, row['key']))}"


def pooled(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Job -> candidate -> median of its times in all processes of all runs."""
    readings: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for unit in (unit for run in runs for unit in run["units"]):
        for candidate, us in unit.get("times", {}).items():
            readings[unit["done"]][int(candidate)].append(us)
    return {
        job: {candidate: statistics.median(values) for candidate, values in own.items()}
        for job, own in readings.items()
    }


def compared(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each call: times of all runs, winners, and how far apart they are."""
    rows_by_place: dict[str, list[Row]] = defaultdict(list)
    for row in (row for run in runs for row in run["rows"]):
        rows_by_place[place(row)].append(row)
    times = pooled(runs)
    calls = []
    for name, rows in rows_by_place.items():
        us = [row["us"] for row in rows]
        middle = statistics.median(us)
        winners = sorted({row["number"] for row in rows})
        own = [times[job] for job in rows[0]["jobs"]]
        means = [statistics.geometric_mean([by[number - 1] for by in own]) for number in winners]
        calls.append(
            {
                "call": name,
                "us": us,
                "largest_difference": max(us) / min(us) - 1,
                "from_median": max(max(us) / middle - 1, 1 - min(us) / middle),
                "winners": winners,
                "winner_gap": max(means) / min(means) - 1,
                "spread": statistics.median(row["spread"] for row in rows),
            }
        )
    return calls


def start_costs(variant: Path, device: str) -> dict[str, float]:
    """Seconds until Torch is imported and devices are listed, and until workers are ready."""
    namespace = read_manifest(variant).namespace
    settings = {"variant": str(variant), "namespace": namespace, "device": device, "root": "."}
    costs = {}
    began = time.monotonic()
    with ProbeHost(LocalRunner(), Path(sys.executable), Path.cwd()) as host:
        host.devices()
        costs["devices listed"] = time.monotonic() - began
        connection = host.connect()
        for count in (1, 4):
            began, waiting = time.monotonic(), {connection.start(settings) for _ in range(count)}
            while waiting:
                answer = connection.receive()
                if "ready" in answer:
                    waiting.remove(answer["worker"])
            costs[f"{count} workers ready"] = time.monotonic() - began
    return costs


class ReplayHost(SimulatedHost):
    """Workers whose measurements take as long as they did on the GPU."""

    seconds: Mapping[tuple[str, int], float] = {}

    def measured(self, gpu: SimulatedGpu, job: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """See `SimulatedHost.measured`."""
        times = {str(at): 1.0 for at in job["candidates"]}
        return {"times": times, "default": 0, "seconds": self.seconds[job["id"], job["repetition"]]}


@dataclass(frozen=True)
class ReplayedCase:
    """A call; all that matters is which are long."""

    bytes: float


@dataclass(frozen=True)
class ReplayedJob:
    """A job that was measured."""

    id: str
    case: ReplayedCase

    def content(self) -> dict[str, Any]:
        """See `RaceJob.content`."""
        return {"candidates": [0]}


def simulated(units: Sequence[Mapping[str, Any]], count: int, start_s: float) -> float:
    """Seconds on so many GPUs, when each measurement takes as long as it did."""
    host = ReplayHost({f"cuda:{n}": SimulatedGpu() for n in range(count)}, lambda _: {}, start_s)
    host.seconds = {(unit["done"], unit["repetition"]): unit["seconds"] for unit in units}
    jobs: list[Any] = [
        ReplayedJob(job, ReplayedCase(seconds))
        for (job, number), seconds in host.seconds.items()
        if number == 0
    ]
    devices = [Device(name, "", "sm_90", 1) for name in host.gpus]
    setting: Any = WorkerSettings(host, ROOT, "", ROOT)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder, "journal.jsonl"))
        DeviceWorkers(setting, devices, journal, lambda *_: None).measure(jobs)
    return host.now


def start_cluster(folder: Path, stack: ExitStack) -> str:
    """The address of a cluster with one worker, which ends with the stack."""
    os.environ["KBUILD_WORKER_PYTHON"] = sys.executable
    cluster = Cluster(folder / "cluster", [sorted(os.sched_getaffinity(0))])
    stack.callback(cluster.stop)
    os.environ["KBUILD_CLUSTER_CREDENTIALS"] = str(cluster.folder / CREDENTIALS)
    return cluster.address


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", type=Path, required=True)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument(
        "--device", action="append", default=[], help="default: the first GPU, and all"
    )
    parser.add_argument("--cluster", action="store_true", help="also on a cluster on loopback")
    parser.add_argument("--work", type=Path, help="where runs are kept (default: nowhere)")
    parser.add_argument("--name", default="tune_repeatability", help="of the file of results")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    variant = args.variant.absolute()
    runs: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = ["", start_cluster(temporary, stack)] if args.cluster else [""]
        devices = args.device or ["0"]
        for device, number, address in product(devices, range(args.runs), addresses):
            place = f"cluster {device}" if address else device
            name = f"{place}-{number}".replace(":", "-").replace(" ", "-")
            record = (args.work or temporary) / f"{name}.json"
            if not record.exists():
                run = tune(args.project.absolute(), variant, device, temporary / name, address)
                record.parent.mkdir(parents=True, exist_ok=True)
                record.write_text(json.dumps(run))
            run = json.loads(record.read_text())
            runs.setdefault(place, []).append(run)
            print(f"{place} {number}: {run['seconds']:.1f} s", flush=True)
    every = [run for some in runs.values() for run in some]
    calls = compared(every)
    for call in calls:
        print(
            f"{call['call']:<36} {min(call['us']):8.1f} to {max(call['us']):8.1f} us"
            f" {call['largest_difference']:6.1%} winners {call['winners']}"
            f" {call['winner_gap']:5.1%} apart, spread {call['spread']:.1%}"
        )
    measuring = {
        device: [sum(unit["seconds"] for unit in run["units"]) for run in some]
        for device, some in runs.items()
    }
    device = "cpu" if args.device == ["cpu"] else "cuda:0"
    starts = start_costs(variant, device)
    units, start_s = every[0]["units"], starts["4 workers ready"]
    seconds = {str(count): simulated(units, count, start_s) for count in (1, 2, 4, 8)}
    targets = [
        {
            "what": "largest difference of a time between runs",
            "value": max(call["largest_difference"] for call in calls),
            "target": 0.03,
        },
        {
            "what": "largest difference of two winners",
            "value": max(call["winner_gap"] for call in calls),
            "target": 0.02,
        },
        {
            "what": "simulated: share of one GPU's time on 4",
            "value": seconds["4"] / seconds["1"],
            "target": 1 / 3.5,
        },
    ]
    for device, some in runs.items():
        if f"cluster {device}" in runs:
            remote = [run["seconds"] for run in runs[f"cluster {device}"]]
            share = statistics.median(remote) / statistics.median(run["seconds"] for run in some)
            targets.append(
                {
                    "what": "a run on a cluster, as a share of a local one",
                    "value": share,
                    "target": 1.1,
                }
            )
    print({name: round(value, 2) for name, value in {**starts, **seconds}.items()})
    print(table(targets))
    result = {
        "device": every[0]["device"],
        "targets": targets,
        "calls": calls,
        "seconds": {device: [run["seconds"] for run in some] for device, some in runs.items()},
        "measuring_seconds": measuring,
        "start_seconds": starts,
        "simulated_seconds_by_gpus": seconds,
    }
    if args.save:
        save(args.name, result)


if __name__ == "__main__":
    main()

"""Builds on a cluster of this machine: speed, overhead, kills, and a simulation of many workers.

    python benchmarks/cluster.py speed --workers 4 --units 64
    python benchmarks/cluster.py local --before TREE --units 64 --rounds 5
    python benchmarks/cluster.py overhead --units 10000
    python benchmarks/cluster.py kills --count 50
    python benchmarks/cluster.py simulate --workers 1000 --units 100000 --seconds 10

`speed` builds a project of heavy units with new sources: without a cluster, on the processors of
one worker and on all; on one worker; and on all workers, each held to its own processors.
`local` builds new sources, and images of `examples/rmsnorm-triton`, in turn by this kbuild and by
the one whose sources are in `--before`, without a cluster.
`kills` ends a worker, the scheduler or the building kbuild at random, and compares the bytes.
`overhead` and `simulate` run units that sleep, with Dask's real scheduler and kbuild's executor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import heavy
import report

from kbuild.plugins.cluster.assignments import WorkUnit
from kbuild.plugins.cluster.executor import ClusterExecutor, ClusterLimits
from kbuild.plugins.cluster.jobs import MachineFacts
from kbuild.plugins.cluster.serve import split_processors

BUILD = """\
[general]
name = "heavy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.heavy]
backend = "cpu"
depends = []
src = [{sources}]
"""
BINDING = '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
FACTS = MachineFacts("simulated", "", "", "")
ROOT = Path(__file__).resolve().parents[1]
CREDENTIALS = "cluster/credentials.pem"
ALL_PROCESSORS = "local, all processors"
"""A leg of `speed`."""
Process = "subprocess.Popen[bytes]"


def write_project(folder: Path, units: int, rows: int, stamp: str) -> Path:
    """A project of heavy units; with another stamp, no cache has an object of it."""
    shutil.rmtree(folder, ignore_errors=True)
    paths = [f"src/unit{number}.cpp" for number in range(units)]
    texts = {path: heavy.source(Path(path).stem, rows, stamp) for path in paths}
    texts["build.toml"] = BUILD.format(sources=", ".join(f'"{path}"' for path in paths))
    texts |= {"torch-ext/binding.cpp": BINDING, "torch-ext/heavy/__init__.py": ""}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def environment(cache: Path, **more: str) -> dict[str, str]:
    """The environment of a kbuild with that cache."""
    own = {"KBUILD_CACHE_DIR": str(cache), "KBUILD_TOOLCHAIN": "host", "NO_COLOR": "1", **more}
    return {**os.environ, **own}


def start(command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> Any:
    """Start a command of kbuild."""
    with log.open("wb") as file:
        return subprocess.Popen(  # noqa: TID251
            (sys.executable, "-m", "kbuild", *command),
            cwd=cwd,
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def wait_for(log: Path, pattern: str, count: int = 1, seconds: float = 120) -> list[str]:
    """What the pattern matches in a log, as soon as it does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        matches = re.findall(pattern, log.read_text(errors="replace")) if log.exists() else []
        if len(matches) >= count:
            return matches
        time.sleep(0.05)
    sys.exit(f"no `{pattern}` in {log.read_text()}")


class Cluster:
    """A scheduler, and workers that are held to some processors."""

    def __init__(self, folder: Path, workers: Sequence[Sequence[int]], port: int = 0) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.scheduler = self._start("scheduler", "start", "--workers", "0", "--port", str(port))
        log = folder / "scheduler.log"
        (self.address,) = wait_for(log, r"cluster: (tls://\S+);")
        self.workers = [self.add_worker(n, processors) for n, processors in enumerate(workers)]
        for number in range(len(workers)):
            wait_for(folder / f"worker{number}.log", r"worker \S+: ")

    def add_worker(self, number: int, processors: Sequence[int]) -> Any:
        """Start one more."""
        listed = ",".join(map(str, processors))
        return self._start(f"worker{number}", "worker", self.address, "--processors", listed)

    def _start(self, log: str, *arguments: str) -> Any:
        command, place = ("cluster", *arguments), self.folder / f"{log}.log"
        return start(command, self.folder, environment(self.folder), place)

    def stop(self) -> None:
        """End all."""
        for process in (*self.workers, self.scheduler):
            process.terminate()
        for process in (*self.workers, self.scheduler):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def build(
    project: Path, cache: Path, cluster: Cluster | None, processors: Sequence[int] | None = None
) -> float:
    """Seconds of a build; on some processors only, if they are given."""
    command, env = ["build", "--unique-id", "abc1234"], environment(cache)
    if cluster is not None:
        command += ["--executor", cluster.address]
        env["KBUILD_CLUSTER_CREDENTIALS"] = str(cluster.folder / CREDENTIALS)
    log, all_processors = project.parent / "build.log", os.sched_getaffinity(0)
    if processors:
        os.sched_setaffinity(0, processors)
    began = time.perf_counter()
    try:
        process = start(command, project, env, log)
    finally:
        os.sched_setaffinity(0, all_processors)
    status, took = process.wait(), time.perf_counter() - began
    text = log.read_text()
    if status or (cluster is not None and not re.search(r"\b(\d+) of \1 objects from cache", text)):
        sys.exit(text)  # it failed, or the cluster was not used
    return took


def timeline(project: Path, began: float) -> dict[str, float]:
    """Seconds until the workers' first unit, of all their units, and after the last, by the log."""
    log = project / ".kbuild" / "report" / "units.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    units = [record for record in records if record.get("worker")]
    if not units:
        return {}
    first, last = min(unit["start"] for unit in units), max(unit["end"] for unit in units)
    compiled = sum(unit["end"] - unit["start"] for unit in units)
    return {"before": first - began, "units": last - first, "after": time.time() - last} | {
        "logged": len(units),
        "mean of a unit": compiled / len(units),
        "in parallel": compiled / (last - first),
    }


def speed(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One worker against local, and all workers against one."""
    available = sorted(os.sched_getaffinity(0))
    shares = split_processors(args.workers, available)
    several = f"{args.workers} workers"
    plans = {"local": [], ALL_PROCESSORS: [], "one worker": shares[:1], several: shares}
    plans = {name: plans[name] for name in plans if name not in args.without}
    rows = args.rows if not args.seconds_of_unit else calibrated_rows(args.seconds_of_unit)
    print(f"{rows} rows", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    timelines: dict[str, dict[str, float]] = {}
    for name, workers in plans.items():
        place = folder / re.sub(r"\W+", "-", name)
        cluster = Cluster(place / "cluster", workers) if workers else None
        (place / "cache").mkdir(parents=True)
        try:
            for number in range(args.rounds + 1):
                # The first round has toolchains and compilers found, and is not counted.
                units, weight = (args.units, rows) if number else (2 * len(available), 2)
                project = write_project(place / "project", units, weight, f"{name} {number}")
                began = time.time()
                held = shares[0] if name == "local" else None
                took = build(project, place / "cache", cluster, held)
                timelines[name] = timeline(project, began)
                print(f"{name}, round {number}: {took:.1f} s", flush=True)
                seconds[name] += [took] * bool(number)
        finally:
            if cluster is not None:
                cluster.stop()
    best = {name: min(values) for name, values in seconds.items()}
    ratios = {
        f"one worker / {name}": best["one worker"] / best[name]
        for name in best
        if "one worker" in best
    }
    facts: dict[str, Any] = {
        "units": args.units,
        "rows": rows,
        "processors of a worker": len(shares[0]),
    }
    facts |= {"last rounds": {name: lane for name, lane in timelines.items() if lane}}
    if ALL_PROCESSORS in best and "local" in best:  # what this machine allows
        ratios[f"local / {ALL_PROCESSORS}"] = best["local"] / best[ALL_PROCESSORS]
    return {**facts, "seconds": seconds, **ratios}


def local(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Builds without a cluster beside those of another kbuild."""
    trees = {"before": args.before.resolve(), "now": ROOT}
    triton = ROOT / "examples" / "rmsnorm-triton"
    seconds: dict[str, dict[str, list[float]]] = {"units": {}, "images": {}}
    for number in range(args.rounds + 1):  # the first provisions toolchains, and is not counted
        for name in list(trees)[:: 1 if number % 2 else -1]:
            cache, more = folder / name / "cache", {"PYTHONPATH": str(trees[name])}
            project = write_project(folder / name / "units", args.units, args.rows, f"{number}")
            took = {"units": timed(["build"], project, environment(cache, **more))}
            images = folder / name / "images"
            shutil.rmtree(images, ignore_errors=True)
            shutil.copytree(triton, images, ignore=shutil.ignore_patterns("build", ".kbuild"))
            (cache / "store").mkdir(parents=True, exist_ok=True)
            cold = folder / name / f"cache-{number}"
            cold.mkdir()
            (cold / "store").symlink_to(cache / "store")
            command = ["build", "--variant", "torch-stable-abi211-cu130-*"]
            env = environment(cold, KBUILD_TOOLCHAIN="wheels", **more)
            took["images"] = timed(command, images, env)
            print(number, name, took, flush=True)
            for kind, value in took.items():
                seconds[kind].setdefault(name, []).extend([value] * bool(number))
    ratios = {
        f"{kind}: now / before": statistics.median(by["now"]) / statistics.median(by["before"])
        for kind, by in seconds.items()
    }
    return {"units": args.units, "rows": args.rows, "seconds": seconds, **ratios}


def timed(command: Sequence[str], project: Path, env: Mapping[str, str]) -> float:
    """Seconds of a command that succeeds."""
    log, began = project.parent / "build.log", time.perf_counter()
    if start([*command, "--unique-id", "abc1234"], project, env, log).wait():
        sys.exit(log.read_text())
    return time.perf_counter() - began


def calibrated_rows(seconds: float) -> int:
    """The weight of a unit that takes about so many seconds on this machine."""
    rows = 40
    for _ in range(3):
        rows = max(2, min(600, round(rows * (seconds / heavy.compiled(rows).seconds) ** 0.6)))
    return rows


def libraries(project: Path) -> dict[str, bytes]:
    """The libraries that were built."""
    return {path.name: path.read_bytes() for path in (project / "build").rglob("*.so")}


def kills(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Builds of which something is killed, until each is complete."""
    generator = random.Random(args.seed)  # noqa: S311
    available = sorted(os.sched_getaffinity(0))
    shares = [available[:1], available[-1:]]
    outcomes: list[dict[str, Any]] = []
    cluster = Cluster(folder / "cluster", shares)
    port = int(cluster.address.rpartition(":")[2])
    for number in range(args.count):
        stamp = f"kill {args.seed} {number}"
        reference = write_project(folder / "reference", args.units, args.rows, stamp)
        build(reference, folder / "reference-cache", None)
        project = write_project(folder / "project", args.units, args.rows, stamp)
        victim, delay = generator.choice(["worker", "scheduler", "head"]), generator.uniform(0.5, 8)
        command = ["build", "--unique-id", "abc1234", "--executor", cluster.address]
        credentials = str(cluster.folder / CREDENTIALS)
        env = environment(folder / "cache", KBUILD_CLUSTER_CREDENTIALS=credentials)
        head = start(command, project, env, folder / "build.log")
        time.sleep(delay)
        choices = {"worker": cluster.workers[0], "scheduler": cluster.scheduler, "head": head}
        choices[victim].send_signal(signal.SIGKILL)
        status, attempts = head.wait(), 1
        if victim == "worker":
            cluster.workers[0].wait()
            cluster.workers[0] = cluster.add_worker(0, shares[0])
        elif victim == "scheduler":
            cluster.stop()
            cluster = Cluster(folder / "cluster", shares, port)
        if status:
            attempts, status = 2, start(command, project, env, folder / "again.log").wait()
        same = libraries(project) == libraries(reference) != {}
        outcomes.append({"victim": victim, "delay": round(delay, 2), "attempts": attempts})
        outcomes[-1]["complete"] = same and status == 0
        print(number, outcomes[-1], flush=True)
    cluster.stop()
    complete = sum(outcome["complete"] for outcome in outcomes)
    victims = {
        name: sum(outcome["victim"] == name for outcome in outcomes)
        for name in ("worker", "scheduler", "head")
    }
    return {"kills": args.count, "complete with the same bytes": complete, "victims": victims}


def describe_simulated() -> dict[str, Any]:
    """Stands for `describe_worker`."""
    return {"facts": {"kbuild": "simulated", "python": "", "libc": "", "machine": ""}}


async def sleep_unit(session: str, job: str, key: str, seconds: float) -> dict[str, Any]:
    """Stands for `make_unit`."""
    del session, job, seconds
    nap = float(key.partition(" ")[2])
    await asyncio.sleep(nap)
    return {"outputs": {}, "seconds": nap}


def serve_scheduler(file: str) -> None:
    """Be a scheduler; its address goes to a file."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as it:
            Path(file).write_text(it.address)  # noqa: ASYNC240 - nobody waits
            await it.finished()

    asyncio.run(serve())


def serve_workers(address: str, count: int) -> None:
    """Be several workers."""
    from distributed import Worker

    async def serve() -> None:
        options = {"nthreads": 1, "memory_limit": 0, "dashboard": False}
        workers = [
            Worker(address, dashboard_address="127.0.0.1:0", **options) for _ in range(count)
        ]
        for first in range(0, count, 20):
            await asyncio.gather(*workers[first : first + 20])
        await asyncio.gather(*(worker.finished() for worker in workers))

    asyncio.run(serve())


@contextmanager
def simulated_cluster(folder: Path, workers: int, processes: int) -> Iterator[Any]:
    """A client of a real scheduler with workers whose units only sleep."""
    from distributed import Client

    from kbuild.plugins.cluster.connect import require_distributed

    require_distributed()
    file, script = folder / "address", str(Path(__file__))
    quiet = {
        "DASK_LOGGING__DISTRIBUTED": "critical",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    }
    run = lambda *words: subprocess.Popen(  # noqa: E731, TID251
        (sys.executable, script, *words), env={**os.environ, **quiet}, stderr=subprocess.DEVNULL
    )
    started = [run("serve-scheduler", "--file", str(file))]
    try:
        while not file.exists() or not file.read_text():
            time.sleep(0.1)
        address = file.read_text()
        for number in range(processes):
            count = len(range(number, workers, processes))
            started.append(run("serve-workers", "--file", address, "--workers", str(count)))
        with Client(address, set_as_default=False, timeout=60) as client:
            client.wait_for_workers(workers, timeout=600)
            yield client
    finally:
        for process in started:
            process.kill()


def sleeping_units(
    client: Any, count: int, nap: Callable[[], float], workers: int
) -> dict[str, float]:
    """Run units that sleep; what they took."""
    functions = (describe_simulated, sleep_unit)
    executor = ClusterExecutor(client, FACTS, print, ClusterLimits(), functions=functions)
    units = []
    for number in range(count):
        seconds = nap()
        units.append(WorkUnit(f"{number} {seconds}", "unit", "job", seconds))
    results: list[float] = []
    while sum(worker.is_usable for worker in executor.workers.values()) < workers:
        time.sleep(0.2)
    began, used = time.perf_counter(), time.process_time()
    left = executor.execute(units, lambda result: results.append(result.seconds))
    took = time.perf_counter() - began
    processor = time.process_time() - used
    executor.close()
    if left or len(results) != count:
        sys.exit(f"{len(left)} units are left, {len(results)} were made")
    return {
        "workers": workers,
        "units": count,
        "seconds": took,
        "units per second": count / took,
        "busy": sum(results) / (took * workers),
        "processor seconds here": processor,
        "megabytes here": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def overhead(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What a unit costs that takes no time."""
    with simulated_cluster(folder, args.workers, 1) as client:
        result = sleeping_units(client, args.units, lambda: 0.0, args.workers)
    return {**result, "milliseconds per unit": 1000 * result["seconds"] / args.units}


def simulate(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Many workers that sleep."""
    generator = random.Random(args.seed)  # noqa: S311

    def nap() -> float:
        return round(generator.uniform(0.5, 1.5) * args.seconds, 2)

    with simulated_cluster(folder, args.workers, args.processes) as client:
        return sleeping_units(client, args.units, nap, args.workers)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = {
        "speed": speed,
        "local": local,
        "kills": kills,
        "overhead": overhead,
        "simulate": simulate,
    }
    parser.add_argument("mode", choices=(*modes, "serve-scheduler", "serve-workers"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--units", type=int, default=8)
    parser.add_argument("--rows", type=int, default=20, help="weight of a unit")
    parser.add_argument("--seconds-of-unit", type=float, help="choose the weight by the time")
    parser.add_argument("--before", type=Path, help="a checkout of another kbuild")
    parser.add_argument("--without", action="append", default=[], help="a leg of speed")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--count", type=int, default=3, help="kills")
    parser.add_argument("--seconds", type=float, default=10, help="of a sleeping unit")
    parser.add_argument("--processes", type=int, default=4, help="of simulated workers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", default="", help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help="keep the result")
    parser.add_argument("--out", type=Path, help="folder to keep it in, if not results/")
    args = parser.parse_args()
    if args.mode == "serve-scheduler":
        serve_scheduler(args.file)
    elif args.mode == "serve-workers":
        serve_workers(args.file, args.workers)
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = modes[args.mode](args, Path(folder))
        print(result)
        if args.out:
            report.RESULTS = args.out
        if args.out or args.save:
            report.save(f"cluster_{args.mode}", result)


if __name__ == "__main__":
    main()

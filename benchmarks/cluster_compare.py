"""All selected variants of projects, built here and on a cluster of this machine: differences.

    python benchmarks/cluster_compare.py --project "examples/relu --backend cpu" --save

Both builds start without objects and images. The cluster has two workers, and compiles no samples
again on the machine that builds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import report
from cluster import CREDENTIALS, Cluster, environment, start

from kbuild.build.unit_log import read_log


def cold_cache(folder: Path, store: Path | None) -> Path:
    """A cache without objects and images, but with the toolchains of another one."""
    folder.mkdir(parents=True, exist_ok=True)
    if store is not None and not (folder / "store").exists():
        (folder / "store").symlink_to(store.resolve())
    return folder


def built_variants(command: str, place: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Build a copy of a project: the files of its variants, and by whom units were made."""
    source, *options = shlex.split(command)
    project = place / Path(source).name
    ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__")
    shutil.copytree(source, project, ignore=ignored)
    log, began = place / f"{project.name}.log", time.perf_counter()
    status = start(["build", "--unique-id", "abc1234", *options], project, env, log).wait()
    if status:
        sys.exit(log.read_text())
    units = read_log(project / ".kbuild" / "report" / "units.jsonl").elsewhere
    files = {
        path.relative_to(project).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (project / "build").rglob("*")
        if path.is_file()
    }
    seconds = round(time.perf_counter() - began, 1)
    return {"files": files, "seconds": seconds, "units": sorted(unit.unit for unit in units)}


def compare(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Build all variants here and on a cluster."""
    available = sorted(os.sched_getaffinity(0))
    shares, outcomes = [available[:1], available[-1:]], {}
    for number in range(len(shares)):
        worker = folder / "cluster" / "workers" / f"{socket.gethostname()}-{number}"
        cold_cache(worker / "cache", args.store)
    cluster = Cluster(folder / "cluster", shares)
    own = {"KBUILD_TOOLCHAIN": args.toolchain, "KBUILD_CLUSTER_SAMPLE": "0"}
    remote = {
        "KBUILD_CLUSTER": cluster.address,
        "KBUILD_CLUSTER_CREDENTIALS": str(cluster.folder / CREDENTIALS),
    }
    try:
        for command in args.project:
            here, there = (
                built_variants(
                    command,
                    folder / leg,
                    environment(cold_cache(folder / leg / "cache", args.store), **own, **more),
                )
                for leg, more in (("local", {}), ("remote", remote))
            )
            paths = here["files"].keys() | there["files"].keys()
            differing = sorted(
                path for path in paths if here["files"].get(path) != there["files"].get(path)
            )
            outcomes[command] = {
                "variants": len({Path(path).parts[1] for path in paths if path.endswith(".json")}),
                "files": len(paths),
                "differing": differing,
                "units made by workers": len(there["units"]),
                "seconds": {"local": here["seconds"], "cluster": there["seconds"]},
            }
            print(command, outcomes[command], flush=True)
    finally:
        cluster.stop()
    return outcomes


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", action="append", help="folder and options of `kbuild build`")
    parser.add_argument("--toolchain", default="wheels")
    parser.add_argument("--store", type=Path, help="toolchains that are not fetched again")
    parser.add_argument("--save", action="store_true", help="keep the result")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(args, Path(folder))
    if args.save:
        report.save("cluster_compare", result)


if __name__ == "__main__":
    main()

"""From nothing to toolchains: what is fetched, how long it takes, and what one release more costs.

Each step is a command of kbuild's with one cache that is empty at first. Everything comes from the
package index that pip is set up for: find-links folders and indexes on this machine are left out.
The bytes are those that kbuild says it fetched, and those that a proxy of this script's counted on
their way to it, which are what the targets are held against.

    python benchmarks/provisioning.py [--save] [--json]

Needs a C++ compiler, for link stubs and the manylinux link environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from counting_proxy import CountingProxy, counting_proxy
from own_peak import Ran, kbuild, target
from report import save, table

from kbuild.runtime.processes import LocalRunner
from kbuild.toolchains.wheels.settings import IndexSettings, pip_settings

FURTHER_TORCH, FURTHER_CUDA = "torch-2.15", "cuda-13.2"
STEPS = {
    "first": ("cuda-13.0", "torch-2.12", "torch-2.13", "torch-2.14"),
    "further toolkit": (FURTHER_CUDA,),
    "further Torch": (FURTHER_TORCH,),
}
VARIANTS = [
    f"torch2{minor}-cxx11-{backend}-x86_64-linux"
    for minor in (12, 13, 14, 15)
    for backend in ("cpu", "cu130", "cu132")
]
# What a build asks of the toolchain source before it compiles: here for every variant.
PROVISION = """
import sys
from pathlib import Path
from kbuild.selection import Selection
from kbuild.planning.variant import Planner
from kbuild.project import open_project
from kbuild.runtime.processes import LocalRunner
from kbuild.sourcetree import SourceTree
from kbuild.toolchains.wheels.source import WheelToolchains
runner = LocalRunner()
wheels = WheelToolchains(runner, Path(sys.argv[1]))
project = open_project(Path(sys.argv[2]))
planner = Planner(project, SourceTree(project.root), runner)
for plan in planner.select(Selection(globs=tuple(sys.argv[3:]))):
    wheels.provision(plan.requires)
"""
RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"
MEGABYTE = 1e6


def is_local(place: str) -> bool:
    """True for a folder, and for an index on this machine."""
    return "://" not in place or place.startswith("file:")


def environment(settings: IndexSettings, proxy: str, cache: Path) -> dict[str, str]:
    """pip's settings as variables alone, without what is local, through the proxy."""
    if settings.no_index or (settings.index_url and is_local(settings.index_url)):
        sys.exit("pip is set up without a package index: there is nothing to measure")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    options = {
        "CONFIG_FILE": os.devnull,
        "PROXY": proxy,
        "INDEX_URL": settings.index_url,
        "EXTRA_INDEX_URL": " ".join(url for url in settings.extra_index_urls if not is_local(url)),
        "CERT": settings.cert,
        "CLIENT_CERT": settings.client_cert,
        "TRUSTED_HOST": " ".join(settings.trusted_hosts),
        "TIMEOUT": str(settings.timeout),
    }
    chosen = {f"PIP_{name}": value for name, value in options.items() if value}
    return {**kept, **chosen, "KBUILD_CACHE_DIR": str(cache)}


def interfaces() -> int:
    """Bytes that all network interfaces but the loopback one have received: of all programs."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    counts = (line.partition(":") for line in lines)
    return sum(int(rest.split()[0]) for name, _, rest in counts if name.strip() != "lo")


def installed(names: Iterable[str], env: Mapping[str, str], proxy: CountingProxy) -> dict[str, Any]:
    """One `kbuild toolchain install`."""
    counted, seen = proxy.received, interfaces()
    ran = kbuild(["toolchain", "install", *names], env)
    entries = ran.answer["installed"]
    sources = [source for entry in entries for source in entry["sources"]]
    return {
        "what": list(names),
        "wall": ran.wall,
        "counted MB": (proxy.received - counted) / MEGABYTE,
        "said MB": sum(source["fetched"] for source in sources) / MEGABYTE,
        "all programs MB": (interfaces() - seen) / MEGABYTE,
        "whole wheels MB": sum(source["size"] for source in sources) / MEGABYTE,
        "local wheels": sum(1 for source in sources if source["how"] == "local"),
        "peak MB": ran.peak,
        "entries": {entry["name"]: entry["size"] / MEGABYTE for entry in entries},
    }


def provisioned(env: Mapping[str, str], proxy: CountingProxy) -> dict[str, Any]:
    """The rest of what a build needs, for all variants: nothing may be fetched for it any more."""
    counted, began = proxy.received, time.perf_counter()
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-c", PROVISION, env["KBUILD_CACHE_DIR"], str(RELU), *VARIANTS],
        capture_output=True,
        text=True,
        check=False,
        env=dict(env),
    )
    if done.returncode:
        sys.exit(f"provisioning failed:\n{done.stderr}")
    megabytes = (proxy.received - counted) / MEGABYTE
    return {
        "wall": time.perf_counter() - began,
        "counted MB": megabytes,
        "variants": len(VARIANTS),
    }


def looked_after(env: Mapping[str, str]) -> tuple[dict[str, Any], list[Ran]]:
    """`list`, `verify`, a second `install` and `prune`; ends the script when wrong."""
    names = sorted(name for step in STEPS.values() for name in step)
    listed, verified = kbuild(["toolchain", "list"], env), kbuild(["toolchain", "verify"], env)
    again = kbuild(["toolchain", "install", *names], env)
    have = {one["name"] for one in listed.answer["installed"]}
    if not {one["name"] for one in again.answer["installed"]} <= have:
        sys.exit(f"installing again made other entries: {again.answer}")
    if not verified.answer["ok"] or set(verified.answer["entries"]) != have:
        sys.exit(f"verify does not agree with list: {verified.answer}")
    kept = kbuild(["toolchain", "prune"], env)
    pruned = kbuild(["toolchain", "prune", "--all"], env)
    left = kbuild(["toolchain", "list"], env).answer["installed"]
    if kept.answer["removed"] or set(pruned.answer["removed"]) != have or left:
        sys.exit(f"prune removed {kept.answer}, then {pruned.answer} and left {left}")
    runs = {"verify": verified, "install again": again, "prune --all": pruned}
    return {what: ran.wall for what, ran in runs.items()}, list(runs.values())


def measured() -> dict[str, Any]:
    """All steps with one cache."""
    settings = pip_settings(LocalRunner())
    upstream = settings.proxy or os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    with tempfile.TemporaryDirectory() as cache, counting_proxy(upstream) as proxy:
        env = environment(settings, proxy.url, Path(cache))
        result = {what: installed(names, env, proxy) for what, names in STEPS.items()}
        rest = provisioned(env, proxy)
        seconds, runs = looked_after(env)
        peak = max([step["peak MB"] for step in result.values()] + [run.peak for run in runs])
        connections = proxy.connections
    return result | {
        "rest of all variants": rest,
        "afterwards, seconds": seconds,
        "peak MB": peak,
        "connections": connections,
    }


def targets(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was measured beside what was promised."""
    parts = [*(found[what] for what in STEPS), found["rest of all variants"]]
    torch = found["further Torch"]
    seconds = sum(part["wall"] for part in parts)
    megabytes = sum(part["counted MB"] for part in parts)
    local = sum(found[what]["local wheels"] for what in STEPS)
    return [
        {"what": "cu130, cu132, cpu x Torch 2.12-2.15, MB", "value": megabytes, "target": 350},
        {"what": "the same, seconds", "value": seconds, "target": 90},
        {"what": "a further Torch release, MB", "value": torch["counted MB"], "target": 20},
        {"what": "a further Torch release, seconds", "value": torch["wall"], "target": 10},
        {"what": "wheels that were not fetched", "value": local, "target": 0},
        target("provisioning", Ran(None, 0.0, found["peak MB"])),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write results/provisioning.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measured()
    result = {**found, "targets": targets(found)}
    if args.save:
        save("provisioning", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

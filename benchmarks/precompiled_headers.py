"""Host units with and without precompiled headers: processor seconds, and whether objects differ.

Builds examples and a new project of `kbuild init`, each variant with its cache of objects emptied
before every build: once with KBUILD_PRECOMPILED_HEADERS=off, and then four times with it. The third
build makes the headers and the fourth uses them. Each project has a cache of its own.

    python benchmarks/precompiled_headers.py [--cache DIR] [--save] [--json]

`--cache` is a cache folder of kbuild whose toolchains are taken; variants for CUDA need them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from five_variants import cpu_seconds
from report import save, table

from kbuild.system.cache_folder import cache_folder

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"
STABLE = "torch-stable-abi211-cpu-x86_64-linux"
PROJECTS = (
    ("relu", CPU),
    ("relu", CUDA),
    ("relu-stable-abi", STABLE),
    ("all-reduce-norm", CPU),
    ("all-reduce-norm", CUDA),
    ("kbuild init", CPU),
)
TARGET = 0.3


@dataclass(frozen=True)
class Place:
    """One project with one variant, and a cache."""

    project: Path
    variant: str
    cache: Path

    def build(self, headers: str) -> dict[str, dict[str, Any]]:
        """Build from nothing but the headers; what the log says of each host unit."""
        for folder in (self.cache / "objects", self.project / ".kbuild", self.project / "build"):
            shutil.rmtree(folder, ignore_errors=True)
        argv = [sys.executable, "-m", "kbuild", "build", str(self.project), "-j", "1"]
        env = {
            **os.environ,
            "KBUILD_CACHE_DIR": str(self.cache),
            "KBUILD_PRECOMPILED_HEADERS": headers,
        }
        cpu_seconds(
            [*argv, "--variant", self.variant, "--arch", "9.0", "--quiet"]
            if "-cu" in self.variant
            else [*argv, "--variant", self.variant, "--quiet"],
            env,
        )
        log = self.project / ".kbuild" / "report" / "units.jsonl"
        units = (json.loads(line) for line in log.read_text().splitlines())
        return {unit["unit"]: unit for unit in units if unit.get("language") == "CXX"}

    def objects(self) -> dict[str, str]:
        """The digest of each object."""
        tree = self.project / ".kbuild" / self.variant / "tree"
        return {
            str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(tree.glob("CMakeFiles/*.dir/**/*.o"))
        }


def compare(place: Place, name: str) -> list[dict[str, Any]]:
    """One row for each host unit."""
    without = place.build("off")
    expected = place.objects()
    builds = [place.build("3G") for _ in range(4)]
    made = place.objects()
    if made != expected:
        differing = [path for path, digest in expected.items() if made.get(path) != digest]
        sys.exit(f"{name} {place.variant}: other objects with precompiled headers: {differing}")
    size = sum(path.stat().st_size for path in (place.cache / "headers").rglob("*.gch"))
    rows = []
    for unit, plain in without.items():
        last = builds[-1][unit]
        making = max(build[unit].get("precompiling", 0.0) for build in builds)
        rows.append(
            {
                "project": name,
                "variant": place.variant,
                "unit": unit,
                "without": plain["user"] + plain["system"],
                "with": last["user"] + last["system"],
                "making": making,
                "precompiled": last.get("precompiled", ""),
                "headers MB of the project": round(size / 1e6),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def measure(cache: Path) -> dict[str, Any]:
    """All projects, in a folder that is removed afterwards."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, variant) in enumerate(PROJECTS):
            root = Path(folder, str(number))
            place = Place(root / "kernel", variant, root / "cache")
            place.cache.mkdir(parents=True)
            (place.cache / "store").symlink_to(cache / "store")
            if (EXAMPLES / name).is_dir():
                ignored = shutil.ignore_patterns("build", ".kbuild")
                shutil.copytree(EXAMPLES / name, place.project, ignore=ignored)
            else:
                options = ("--name", "me/kernel", "--backends", "cpu", "--no-git", "--quiet")
                argv = [sys.executable, "-m", "kbuild", "init", *options, str(place.project)]
                cpu_seconds(argv, os.environ)
            rows += compare(place, name)
    bindings = [row for row in rows if row["unit"].endswith("torch_binding.cpp")]
    return {
        "units": rows,
        "targets": [
            {
                "what": f"binding of {row['project']}, {row['variant'].split('-')[-3]}",
                "value": row["with"] / row["without"],
                "target": TARGET,
            }
            for row in bindings
        ],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=cache_folder(os.environ))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.cache)
    if args.save:
        save("precompiled_headers", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

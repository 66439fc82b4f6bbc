"""Do builds of `examples/relu` give the same bytes, whatever is around them?

One variant for the CPU and one for CUDA 13.0 (all its archs), each built several times: in other
folders, with one process and with four, from nothing and from the object cache, with another home,
folder of temporary files, time zone, language, umask and place of the toolchains. All files count,
`metadata.json` and modes included.

    python benchmarks/reproducible.py [--variant NAME ...] [--save] [--json]

Needs an environment with kbuild and a C++ compiler (`pip install -e .`); toolchains come from the
package index.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builds import copy_of_relu
from report import save, table

VARIANTS = ("torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux")
TOOLCHAINS = ("torch-2.13", "cuda-13.0")


@dataclass(frozen=True)
class Case:
    """One build and its surroundings."""

    name: str
    folder: str
    cache: str
    """Object caches of that name are the same: the second build finds what the first one left."""
    jobs: int
    umask: int = 0o022
    env: Mapping[str, str] = field(default_factory=dict)


ODD = {"TZ": "Asia/Kathmandu", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "USER": "somebody"}
CASES = (
    Case("-j1, cold", "one", "first", 1),
    Case("-j4, cold, elsewhere", "far/away/from/there", "second", 4, 0o077, ODD),
    Case("-j1, warm", "three", "second", 1),
    Case("-j4, warm, elsewhere", "far/four", "first", 4, 0o027, ODD),
    Case("-j4, no cache", "five-with-a-longer-name", "off", 4, 0o002),
)


@dataclass(frozen=True)
class Workplace:
    """A folder with the committed example, and toolchains that all builds share."""

    root: Path
    store: Path

    def build(self, case: Case, variant: str) -> dict[str, Any]:
        """Build in a clone of its own; the outcome, with a digest of the variant's files."""
        project = self.root / case.folder / variant
        clone = ("git", "clone", "--quiet", str(self.root / "relu"), str(project))
        subprocess.run(clone, check=True)  # noqa: TID251
        argv = [sys.executable, "-m", "kbuild", "build", str(project), "--json", "--quiet"]
        argv += ["--variant", variant, "--toolchain", "wheels", "--jobs", str(case.jobs)]
        began = time.perf_counter()
        done = subprocess.run(  # noqa: TID251
            argv, env=self._env(case), umask=case.umask, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
        (built,) = json.loads(done.stdout)["variants"]
        counts = {key: built[key] for key in ("objects", "from_cache")}
        found = dict(entries(Path(built["path"])))
        return {"variant": variant, "case": case.name, "seconds": seconds, **counts} | {
            "files": sum(1 for text in found.values() if not text.endswith("folder")),
            "sha256": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest(),
        }

    def _env(self, case: Case) -> dict[str, str]:
        """Caches and homes are made when they are asked for first."""
        cache, home = self.root / "caches" / case.cache, self.root / case.folder / "home"
        cache.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        if not (cache / "store").exists():
            (cache / "store").symlink_to(self.store)
        own = {"KBUILD_CACHE_DIR": str(cache), "HOME": str(home), "TMPDIR": str(home)}
        own["KBUILD_CACHE"] = "off" if case.cache == "off" else "on"
        return {**os.environ, **own, **case.env}


def entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file and folder with its mode, files with their SHA-256."""
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        yield path.relative_to(folder).as_posix(), f"{path.stat().st_mode:o} {digest}"


def store_of(given: Path | None, root: Path) -> Path:
    """The toolchains: those in kbuild's cache folder, else fetched into a fresh one."""
    if given is not None:
        return (given / "store").resolve()
    argv = (sys.executable, "-m", "kbuild", "toolchain", "install", *TOOLCHAINS)
    env = {**os.environ, "KBUILD_CACHE_DIR": str(root / "toolchains")}
    subprocess.run(argv, env=env, check=True)  # noqa: TID251
    return root / "toolchains" / "store"


def main() -> None:
    """Build, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", action="append", help="by default one of CPU and CUDA each")
    parser.add_argument("--cache", type=Path, help="kbuild's cache folder, to take toolchains from")
    parser.add_argument(
        "--save", action="store_true", help="write benchmarks/results/reproducible.json"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kbuild-reproducible-"))
    try:
        copy_of_relu(root)
        place = Workplace(root, store_of(args.cache, root))
        variants = args.variant or VARIANTS
        builds = [place.build(case, variant) for variant in variants for case in CASES]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    report(builds, as_json=args.json, keep=args.save)


def report(builds: list[dict[str, Any]], *, as_json: bool, keep: bool) -> None:
    """Print the table; end with 1 when anything differs."""
    states: dict[str, set[str]] = {}
    for built in builds:
        states.setdefault(built["variant"], set()).add(built["sha256"])
    targets = [
        {"what": f"results: {name[:34]}", "value": len(found), "target": 1}
        for name, found in states.items()
    ]
    if keep:
        save("reproducible", {"builds": builds, "targets": targets})
    if as_json:
        print(json.dumps({"builds": builds, "targets": targets}, indent=1))
    else:
        print("\n".join(map(_row, builds)))
        print(table(targets))
    sys.exit(any(len(found) > 1 for found in states.values()))


def _row(built: Mapping[str, Any]) -> str:
    counts = f"{built['from_cache']} of {built['objects']} from cache"
    return (
        f"{built['variant']:<34} {built['case']:<22} {built['seconds']:>6.1f} s  "
        f"{counts:<18} {built['files']:>2} files  {built['sha256'][:16]}"
    )


if __name__ == "__main__":
    main()

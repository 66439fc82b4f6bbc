"""What Nix costs: `python benchmarks/nix.py [--rounds N]`, as root, with nix and users `nixbld*`.

Evaluation and the first build have a store of their own that is empty, and nothing in Nix's caches.
Programs and compilers are this machine's, by the stand-in of the tests; wheels come from the
configured index, and that time is in the first build.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import report

ROOT = Path(__file__).resolve().parent.parent
TREE = ("nix", "kbuild", "templates")
VARIANT = "torch213-cxx11-cpu-x86_64-linux"
TARGETS = {
    "evaluation, cold (s)": 1.0,
    "CPU variant from an empty store (s)": 120.0,
    "nix build, nothing to do (s)": 1.0,
    "nix run .#ci-test, warm (s)": 10.0,
}


@dataclass(frozen=True)
class Bench:
    """A copy of the flake and of an example, and settings."""

    folder: Path

    def prepare(self) -> None:
        """Copy what is needed, and write the settings."""
        bytecode = shutil.ignore_patterns("__pycache__")
        for name in TREE:
            shutil.copytree(ROOT / name, self.folder / "flake" / name, ignore=bytecode)
        for name in ("flake.nix", "flake.lock"):
            shutil.copy(ROOT / name, self.folder / "flake")
        made = shutil.ignore_patterns("__pycache__", "build", ".kbuild")
        shutil.copytree(ROOT / "examples" / "relu", self.folder / "relu", ignore=made)
        script = str(ROOT / "tests" / "support" / "nix" / "stand_in.py")
        subprocess.run((sys.executable, script, str(self.folder / "conf")), check=True)  # noqa: TID251

    def nix(self, *verb: str, attribute: str, cache: Path) -> float:
        """Seconds that one command takes."""
        argv = (
            "nix", *verb, "--no-write-lock-file",
            "--override-input", "kbuild", f"path:{self.folder}/flake",
            "--override-input", "kbuild/nixpkgs", f"path:{self.folder}/conf/nixpkgs",
            f"path:{self.folder}/relu#{attribute}",
        )  # fmt: skip
        own = {"NIX_CONF_DIR": str(self.folder / "conf"), "XDG_CACHE_HOME": str(cache)}
        environment = {**os.environ, **own, "NIX_REMOTE": ""}
        began = time.monotonic()
        done = subprocess.run(  # noqa: TID251
            argv, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}")
        return seconds


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes, stores in it included: their files cannot be written."""
    folder = Path(tempfile.mkdtemp(prefix="kbuild-nix-")).resolve()
    try:
        yield folder
    finally:
        for base, _, _ in os.walk(folder):
            if not Path(base).is_symlink():
                Path(base).chmod(0o700)
        shutil.rmtree(folder)


def evaluation(bench: Bench) -> float:
    """The names of all variants, with nothing that an earlier evaluation left."""
    with scratch() as place:
        store = ("--store", str(place / "store"))
        return bench.nix("eval", "--json", *store, attribute="variants", cache=place / "cache")


def first_build(bench: Bench) -> float:
    """Wheels, kbuild, toolchain, environment for tests, compilation, loading."""
    with scratch() as place:
        verb = ("build", "--no-link", "--max-jobs", "2", "--store", str(place / "store"))
        return bench.nix(*verb, attribute=f"redistributable.{VARIANT}", cache=place / "cache")


def figures(bench: Bench, rounds: int) -> dict[str, float]:
    """Medians; the first build is done once."""
    warm = bench.folder / "cache"
    build = ("build", "--no-link", "--max-jobs", "2")
    attribute = f"redistributable.{VARIANT}"
    cold = [evaluation(bench) for _ in range(rounds)]
    first = first_build(bench)
    bench.nix(*build, attribute=attribute, cache=warm)
    nothing = [bench.nix(*build, attribute=attribute, cache=warm) for _ in range(rounds)]
    bench.nix("run", attribute="ci-test", cache=warm)
    tests = [bench.nix("run", attribute="ci-test", cache=warm) for _ in range(rounds)]
    median = statistics.median
    return dict(zip(TARGETS, (median(cold), first, median(nothing), median(tests)), strict=True))


def main() -> None:
    """Measure, print, and write `results/nix.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with scratch() as folder:
        bench = Bench(folder)
        bench.prepare()
        found = figures(bench, rounds)
    rows = [{"what": name, "value": found[name], "target": TARGETS[name]} for name in TARGETS]
    version = subprocess.check_output(("nix", "--version"), text=True)
    report.save("nix", {"nix": version.strip(), "rounds": rounds, "targets": rows})
    print(report.table(rows))


if __name__ == "__main__":
    main()

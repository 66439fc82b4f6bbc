"""Building `examples/relu` for the CPU: cold, from the cache, unchanged, and one file touched.

The comparison is `torch.utils.cpp_extension.load` on the same sources with `torch/extension.h`
included, as its users write them. Both run as whole processes, in turn, in one run of this
script; quote the ratios, not the seconds.

    python benchmarks/builds.py [--runs 3] [--save] [--json]

Needs an environment with kbuild, torch and ninja (`pip install -e '.[dev]'`).
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
from pathlib import Path

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
RELU = ROOT / "examples" / "relu"
SOURCES = ("torch-ext/torch_binding.cpp", "relu_cpu/relu_cpu.cpp")
EXTENSION = """
import os, sys, torch
from torch.utils.cpp_extension import load
load(
    name="_relu_cpu_bench",
    sources=[{sources}],
    extra_include_paths=[{includes}],
    extra_cflags=["-O3", "-DNDEBUG", "-DCPU_KERNEL"],
    build_directory=sys.argv[1],
)
print(torch.ops._relu_cpu_bench.relu(torch.tensor([-1.0, 2.0])).tolist())
"""


def timed(argv: list[str], **options: object) -> float:
    """Wall seconds of one process, which must succeed."""
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)  # noqa: TID251
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
    return seconds


def kbuild(project: Path, cache: Path, *, objects: bool = True) -> tuple[float, dict[str, object]]:
    """Seconds and outcome of one `kbuild build`, with or without its object cache."""
    argv = [sys.executable, "-m", "kbuild", "build", str(project), "--json"]
    argv += ["--driver", "local"]
    argv += ["--backend", "cpu", "--toolchain", "host"]
    env = {**os.environ, "KBUILD_CACHE_DIR": str(cache), "KBUILD_CACHE": "on" if objects else "off"}
    began = time.perf_counter()
    done = subprocess.run(  # noqa: TID251
        argv, capture_output=True, text=True, check=False, env=env
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"kbuild build failed:\n{done.stdout}\n{done.stderr}")
    variants = json.loads(done.stdout)["variants"]
    return seconds, next(variant for variant in variants if variant["path"])


def copy_of_relu(folder: Path) -> Path:
    """A fresh copy of the example, in a git repository of its own as a user has it."""
    project = folder / "relu"
    shutil.copytree(RELU, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "relu"]):
        timed([*git, *arguments], cwd=project)
    return project


def with_extension_header(folder: Path) -> tuple[list[Path], list[Path]]:
    """The same sources with `torch/extension.h` on top; returns sources and include folders."""
    project = folder / "extension"
    shutil.copytree(RELU, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
    header = ROOT / "templates" / "project" / "registration.h"
    shutil.copy(header, project / "torch-ext" / "registration.h")
    for name in SOURCES:
        path = project / name
        path.write_text(f"#include <torch/extension.h>\n{path.read_text()}")
    return [project / name for name in SOURCES], [project / "torch-ext"]


def cpp_extension(folder: Path) -> float:
    """Seconds of a cold `cpp_extension.load`."""
    sources, includes = with_extension_header(folder)
    script = EXTENSION.format(
        sources=", ".join(repr(str(path)) for path in sources),
        includes=", ".join(repr(str(path)) for path in includes),
    )
    target = folder / "ext-build"
    target.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return timed([sys.executable, "-c", script, str(target)], env={**os.environ, "PATH": path})


def once() -> dict[str, float]:
    """One pair of cold builds, then the incremental ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = copy_of_relu(folder)
        cold, outcome = kbuild(project, folder / "cache")
        if outcome["status"] != "built":
            sys.exit(f"expected a build, got {outcome}")
        unchanged = statistics.median(kbuild(project, folder / "cache")[0] for _ in range(5))
        (project / SOURCES[1]).touch()
        touched, again = kbuild(project, folder / "cache", objects=False)
        shutil.rmtree(project / ".kbuild")
        warm, cached = kbuild(project, folder / "cache")
        if cached["from_cache"] != cached["objects"]:
            sys.exit(f"expected all objects from the cache, got {cached}")
        return {
            "kbuild cold": cold,
            "kbuild new workspace, warm cache": warm,
            "cpp_extension cold": cpp_extension(folder),
            "kbuild unchanged": unchanged,
            "kbuild one .cpp touched": touched,
            "steps after touching": float(str(again["units"])),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/builds.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    runs = [once() for _ in range(args.runs)]
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    ratio = statistics.median(run["kbuild cold"] / run["cpp_extension cold"] for run in runs)
    result = {
        "medians": medians,
        "runs": runs,
        "targets": [
            {"what": "cold / cpp_extension", "value": ratio, "target": 0.6},
            {"what": "unchanged, seconds", "value": medians["kbuild unchanged"], "target": 0.5},
            {"what": "steps after touching", "value": medians["steps after touching"], "target": 2},
        ],
    }
    if args.save:
        save("builds", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

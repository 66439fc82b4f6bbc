"""A second machine's first build of `examples/relu`, whole matrix, with a warm shared cache.

Two machines are two cache folders and two project folders on this one. Both have the toolchains:
the script installs them once, and each machine gets them by hard links. The first machine compiles
and fills the shared cache. The second one builds twice: as it is, and again after everything was
removed but the toolchains and what kbuild found out about them (CMake's detection of compilers).
Compared is all of a build, with its checks, with what the compilers of the first machine took.

    python benchmarks/shared_cache.py [--remote URL] [--toolchains DIR] [--save] [--json]

Needs a package index that pip is set up for, and a C++ compiler. `--remote` names a cache that is
empty; the default is a folder. `--toolchains` names a cache folder of kbuild, on the file system
of temporary files, that has them already.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

from own_peak import kbuild
from report import save, table

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"
TARGET = 0.1


def children() -> float:
    """CPU seconds of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compilers(project: Path) -> float:
    """CPU seconds of the compilers of the last build."""
    lines = (project / ".kbuild" / "report" / "units.jsonl").read_text().splitlines()
    units = [json.loads(line) for line in lines]
    return sum(unit.get("user", 0.0) + unit.get("system", 0.0) for unit in units)


def set_up(folder: Path, toolchains: Path) -> Path:
    """A machine with the toolchains and the project."""
    shutil.copytree(RELU, folder / "relu", ignore=shutil.ignore_patterns("build", ".kbuild"))
    store = folder / "cache" / "store"
    shutil.copytree(toolchains / "store", store, copy_function=os.link, symlinks=True)
    return folder


def clear(folder: Path) -> None:
    """Remove everything from a machine but toolchains and what is known about them."""
    for name in ("build", ".kbuild"):
        shutil.rmtree(folder / "relu" / name)
    for path in (folder / "cache").iterdir():
        if path.name not in {"store", "facts", "installed"}:
            shutil.rmtree(path)


def build(folder: Path, url: str) -> dict[str, float]:
    """A machine's build: seconds, variants, and objects and those that were not compiled."""
    project, cache = folder / "relu", folder / "cache"
    environ = {**os.environ, "KBUILD_CACHE_DIR": str(cache), "KBUILD_REMOTE_CACHE": url}
    used = children()
    ran = kbuild(["build", str(project), "--driver", "local"], environ)
    used = children() - used
    made = [variant for variant in ran.answer["variants"] if variant["path"]]
    return {
        "wall": ran.wall,
        "cpu": used,
        "compilers cpu": compilers(project),
        "variants": len(made),
        "objects": sum(variant["objects"] for variant in made),
        "from_cache": sum(variant["from_cache"] for variant in made),
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of every built variant."""
    root = folder / "relu" / "build"
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.parent != root
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--remote", metavar="URL")
    parser.add_argument("--toolchains", type=Path, metavar="DIR")
    parser.add_argument("--save", action="store_true", help="write results/shared_cache.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        url = args.remote or (place / "shared").as_uri()
        toolchains = args.toolchains or place / "toolchains"
        provisioning = {**os.environ, "KBUILD_CACHE_DIR": str(toolchains)}
        kbuild(["toolchain", "install"], provisioning)
        first = set_up(place / "first", toolchains)
        second = set_up(place / "second", toolchains)
        runs = {"first": build(first, url), "second": build(second, url)}
        clear(second)
        runs["second, compilers known"] = build(second, url)
        files, others = contents(first), contents(second)
        different = [
            path for path in sorted({*files, *others}) if files.get(path) != others.get(path)
        ]
        size = sum(path.stat().st_size for path in (place / "shared").rglob("*") if path.is_file())
    compiling = runs["first"]["compilers cpu"]
    ratio = runs["second, compilers known"]["cpu"] / compiling
    row = {"what": "second build / compiling, CPU", "value": ratio, "target": TARGET}
    result = {
        **runs,
        "second build with detection of compilers / compiling, CPU": runs["second"]["cpu"]
        / compiling,
        "files": len(files),
        "different files": different,
        "shared cache, MB": size / 1e6,
        "targets": [row],
    }
    if args.save:
        save("shared_cache", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

"""What the variants for aarch64 add to a matrix that is built on x86_64, in CPU seconds.

    python benchmarks/cross.py [--save] [--json] [--project NAME]

Builds each example for x86_64 alone, for both processors, and again for aarch64 in another folder,
whose files must be the same. Nothing comes from a cache; toolchains must be there, so the first run
fetches them. Needs a cross compiler, see `kbuild doctor`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from matrix import children
from own_peak import kbuild
from report import save, table

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TARGETS = {"relu": 2.0, "rmsnorm-triton": 1.15}
"""Project -> the most that both processors may take, as a multiple of x86_64 alone."""
VARIANTS = {
    "relu": ("torch213-cxx11-cpu", "torch213-cxx11-cu130"),
    "rmsnorm-triton": ("torch-stable-abi211-cu130",),
}
BOTH = ("x86_64-linux", "aarch64-linux")


def build(project: Path, systems: tuple[str, ...]) -> dict[str, Any]:
    """CPU seconds and variants of a build without a cache."""
    used = children()
    names = [f"{name}-{system}" for name in VARIANTS[project.name] for system in systems]
    selected = [word for name in names for word in ("--variant", name)]
    arguments = ["build", str(project), "--driver", "local", "--toolchain", "wheels", *selected]
    ran = kbuild(arguments, {**os.environ, "KBUILD_CACHE": "off"})
    made = [entry["variant"] for entry in ran.answer["variants"] if entry["status"] == "built"]
    return {"cpu": round(children() - used, 1), "variants": made}


def content(folder: Path) -> dict[str, bytes]:
    """The files of aarch64's variants, by path."""
    files = (path for path in folder.glob("*-aarch64-linux/**/*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def measure(name: str) -> dict[str, Any]:
    """Build one example three times."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, number, name) for number in ("one", "two", "elsewhere/three")]
        for copy in copies:
            ignored = shutil.ignore_patterns("build", ".kbuild")
            shutil.copytree(EXAMPLES / name, copy, ignore=ignored)
        alone = build(copies[0], BOTH[:1])
        both = build(copies[1], BOTH)
        again = build(copies[2], BOTH[1:])
        files = [content(copy / "build") for copy in copies[1:]]
    return {
        "x86_64": alone,
        "both": both,
        "aarch64 again": again,
        "ratio": round(both["cpu"] / alone["cpu"], 3),
        "files of aarch64": len(files[0]),
        "same bytes": bool(files[0]) and files[0] == files[1],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/cross.json")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--project", action="append", choices=TARGETS)
    args = parser.parse_args()
    measured = {name: measure(name) for name in args.project or TARGETS}
    rows = [
        {"what": f"{name}, both / x86_64 alone", "value": one["ratio"], "target": TARGETS[name]}
        for name, one in measured.items()
    ]
    rows += [
        {"what": f"{name}, files that differ", "value": int(not one["same bytes"]), "target": 0}
        for name, one in measured.items()
    ]
    result = {**measured, "targets": rows}
    if args.save:
        save("cross", result)
    print(json.dumps(result, indent=1) if args.json else table(rows))


if __name__ == "__main__":
    main()

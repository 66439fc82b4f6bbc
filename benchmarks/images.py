"""What the device images of Triton projects cost: CPU seconds of a build, and images.

    python benchmarks/images.py [--save] [--project NAME] [--part TEXT] [--before COMMIT]

Builds a copy of each example for x86_64 with nothing in a cache, first with the kbuild and the
examples of COMMIT, then with those of this tree. `--part` keeps the captured functions of that name
alone. Toolchains must be there, so the first run fetches them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from matrix import children
from own_peak import kbuild
from report import save, table

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = ("rmsnorm-triton", "attention-triton")
VARIANTS = ("*-cu126-x86_64-linux", "*-cu130-x86_64-linux", "*-cu132-x86_64-linux")
THIRD = 1 / 3
CAPTURE = re.compile(r"\[\[kernel\.\w+\.capture\]\].*?(?=\n\[\[|\Z)", re.DOTALL)


def copied(tree: Path, name: str, part: str | None, folder: Path) -> Path:
    """A copy of an example, of which only the captured function `part` is left."""
    project = folder / name
    ignored = shutil.ignore_patterns("build", ".kbuild")
    shutil.copytree(tree / "examples" / name, project, ignore=ignored)
    if part is not None:
        file = project / "build.toml"
        text = CAPTURE.sub(lambda m: m[0] if f'name = "{part}"' in m[0] else "", file.read_text())
        file.write_text(text)
    return project


def build(tree: Path, name: str, part: str | None) -> dict[str, Any]:
    """CPU seconds of a build by the kbuild of a tree, and its images for one variant."""
    with tempfile.TemporaryDirectory() as folder:
        project = copied(tree, name, part, Path(folder))
        selected = [word for variant in VARIANTS for word in ("--variant", variant)]
        arguments = ["build", str(project), "--driver", "local", "--toolchain", "wheels", *selected]
        env = {**os.environ, "KBUILD_CACHE": "off", "PYTHONPATH": str(tree)}
        os.chdir(tree)  # Python looks there first
        used = children()
        ran = kbuild(arguments, env)
        os.chdir(ROOT)
    rows = [row for entry in ran.answer["variants"][:1] for row in entry["images"]]
    images = {f"{row['op']} {row['target']}": row["images"] for row in rows}
    return {
        "cpu": round(children() - used, 1),
        "wall": round(ran.wall, 1),
        "images": sum(images.values()),
        "of each op": images,
    }


def measure(name: str, part: str | None, before: str | None) -> dict[str, Any]:
    """Build one example with both trees."""
    measured = {"after": build(ROOT, name, part)}
    if before is not None:
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", str(ROOT), "worktree"]
            tree = Path(folder) / "tree"
            subprocess.run([*git, "add", "-q", "--detach", str(tree), before], check=True)  # noqa: TID251
            try:
                measured["before"] = build(tree, name, part)
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)  # noqa: TID251
        measured["ratio"] = round(measured["after"]["cpu"] / measured["before"]["cpu"], 3)
    return measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/images.json")
    parser.add_argument("--project", action="append", choices=PROJECTS)
    parser.add_argument("--part", help="name of a captured function")
    parser.add_argument("--before", metavar="COMMIT")
    args = parser.parse_args()
    names = args.project or PROJECTS
    measured = {name: measure(name, args.part, args.before) for name in names}
    rows = [
        {"what": f"{name}, CPU after / before", "value": one["ratio"], "target": THIRD}
        for name, one in measured.items()
        if "ratio" in one
    ]
    if args.save:
        save("images", {**measured, "part": args.part, "targets": rows})
    print(json.dumps(measured, indent=1))
    print(table(rows))


if __name__ == "__main__":
    main()

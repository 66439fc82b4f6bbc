"""The README's first command from nothing, and its parts, in seconds.

    python benchmarks/first_command.py [--save] [--json]

Copies what git tracks, with an empty home folder. The command's steps run one by one; then
`kbuild build` runs again without its objects but with its toolchains, so that the difference is
what fetching adds. Needs a package index that pip is set up for, and a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
TARGET = 120.0


def steps() -> list[str]:
    """The steps of the README's first command, in order."""
    lines = (ROOT / "README.md").read_text().splitlines()
    command = next(line for line in lines if line.startswith("python3 -m venv") and "relu" in line)
    return command.split(" && ")


def seconds(command: str, folder: Path, env: dict[str, str]) -> float:
    """Run a step; ends the script when it fails."""
    began = time.perf_counter()
    done = subprocess.run(  # noqa: TID251
        ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write results/first_command.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name, "kbuild"), Path(name, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)  # noqa: TID251
        left_out = {"PYTHONDONTWRITEBYTECODE", "PIP_NO_CACHE_DIR"}
        env = {key: value for key, value in os.environ.items() if key not in left_out}
        env |= {"XDG_CACHE_HOME": str(home)}
        parts = {step: round(seconds(step, folder, env), 1) for step in steps()}
        build = next(step for step in parts if "kbuild build" in step)
        shutil.rmtree(folder / "examples/relu/build")
        shutil.rmtree(folder / "examples/relu/.kbuild")
        for entry in (home / "kbuild").iterdir():
            if entry.name != "store" and entry.is_dir():
                shutil.rmtree(entry)
        compiled = round(seconds(build, folder, env), 1)
    result = {
        "steps": parts,
        "compile": compiled,
        "fetch": round(parts[build] - compiled, 1),
        "targets": [
            {"what": "README's first command, s", "value": sum(parts.values()), "target": TARGET}
        ],
    }
    if args.save:
        save("first_command", result)
    print(json.dumps(result) if args.json else f"{table(result['targets'])}\n{result}")


if __name__ == "__main__":
    main()

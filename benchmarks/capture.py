"""CPU seconds of `kbuild capture` for one function, forward and backward, beside an earlier kbuild.

    python benchmarks/capture.py [--against REVISION] [--name rms_norm] [--rounds 3] [--save]

The function is one of `examples/attention-triton`. Both kbuilds capture it in turn, in copies of
the project, after a first capture of each that is not counted: it installs Triton and writes
bytecode. What they write has to be the same. Needs Torch, git and no GPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import save, table

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "examples" / "attention-triton"
TARGET_S = 15


def main() -> int:
    """Measure; 1 if the target is missed or the captures differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default="", help="revision of kbuild to compare with")
    parser.add_argument("--name", default="rms_norm", help="the captured function")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write results/capture.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = {"this tree": ROOT}
        if args.against:
            trees[args.against] = checked_out(args.against, folder / "kbuild")
        seconds: dict[str, list[dict[str, float]]] = {tree: [] for tree in trees}
        texts = set()
        for number in range(args.rounds + 1):
            for tree, place in trees.items():
                project = folder / "project"
                shutil.copytree(PROJECT, project)
                shutil.rmtree(project / "captured")
                took = captured(place, project, args.name)
                (file,) = (project / "captured").iterdir()
                texts.add(file.read_text("utf-8"))
                shutil.rmtree(project)
                print(f"{tree}, round {number}: {took['cpu_s']} CPU s, {took['wall_s']} s")
                if number:
                    seconds[tree].append(took)
    medians = {
        tree: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for tree, rounds in seconds.items()
    }
    differences = len(texts) - 1
    targets = [
        {
            "what": "capture of one function, CPU s", "value": medians["this tree"]["cpu_s"],
            "target": TARGET_S,
        },
        {"what": "captures that differ", "value": differences, "target": 0},
    ]  # fmt: skip
    print(table(targets))
    if args.save:
        result = {"function": args.name, "medians": medians, "rounds": seconds, "targets": targets}
        save("capture", result)
    return int(any(row["value"] > row["target"] for row in targets))


def checked_out(revision: str, folder: Path) -> Path:
    """The files of a revision of this repository."""
    folder.mkdir()
    command = f"git archive {shlex.quote(revision)} | tar x -C {shlex.quote(str(folder))}"
    subprocess.run(("bash", "-o", "pipefail", "-c", command), cwd=ROOT, check=True)  # noqa: TID251
    return folder


def captured(kbuild: Path, project: Path, name: str) -> dict[str, float]:
    """Seconds of one capture, those of its worker included."""
    env = {**os.environ, "PYTHONPATH": str(kbuild)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kbuild and Torch have bytecode
    command = (sys.executable, "-m", "kbuild", "capture", "--quiet", "--name", name, str(project))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=project, env=env, check=True)  # noqa: TID251
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": round(cpu, 1), "wall_s": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    sys.exit(main())

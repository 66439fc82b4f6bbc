"""How long the import of a kernel's wheel takes, next to loading it with the `kernels` client.

python benchmarks/wheel_import.py            measure and print a table
python benchmarks/wheel_import.py --save     also write benchmarks/results/wheel_import.json

`examples/relu` is built for the CPU, and `kbuild wheel --combined` installed with pip into an
environment of its own, which sees the Torch of the interpreter that runs this file. The two ways
take turns in fresh processes. A figure is the median of the wall times from after `import torch`
until the kernel can be called; the ratio is the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from report import save, table

ROOT = Path(__file__).resolve().parent.parent
TARGET = 1.0
PROCESS = """
import torch, time
start = time.perf_counter()
{load}
kernel.relu
print(time.perf_counter() - start)
"""
WHEEL = "import relu as kernel"
CLIENT = """from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")"""


def run(*argv: str, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} if "-m" in argv else None
    return subprocess.run(  # noqa: TID251
        argv, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True, env=env
    ).stdout


def prepare(work: Path) -> tuple[str, Path]:
    """An interpreter with the wheel, and the built project."""
    project = work / "relu"
    ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__", "dist")
    shutil.copytree(ROOT / "examples" / "relu", project, ignore=ignored)
    kbuild = (sys.executable, "-m", "kbuild")
    run(*kbuild, "build", "--backend", "cpu", "--dev", cwd=project)
    wheel = run(*kbuild, "wheel", "--combined", cwd=project).strip()
    venv.create(work / "env", symlinks=True)
    (site,) = (work / "env" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(work / "env" / "bin" / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel, cwd=work)
    return python, project


def measure(python: str, project: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds by way, one for each round."""
    ways = {"wheel": WHEEL, "client": CLIENT.format(path=str(project))}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, load in ways.items():
            answer = run(
                python, "-W", "ignore", "-c", PROCESS.format(load=load), cwd=project.parent
            )
            if turn:  # the first round only warms the disk
                seconds[way].append(float(answer))
    return seconds


def main() -> int:
    """Exit code 1 when the target is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(*prepare(Path(folder)), args.rounds)
    pairs = zip(seconds["wheel"], seconds["client"], strict=True)
    ratio = statistics.median(wheel / client for wheel, client in pairs)
    targets = [{"what": "import of the wheel / loading", "value": ratio, "target": TARGET}]
    medians = {way: round(1000 * statistics.median(times), 1) for way, times in seconds.items()}
    print(table(targets))
    print("milliseconds after `import torch`:", medians)
    if args.save:
        save("wheel_import", {"targets": targets, "milliseconds": medians, "rounds": args.rounds})
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())

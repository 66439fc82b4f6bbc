"""How long checks take: relu's whole matrix, and one very large library.

The matrix is what `kbuild build` makes of `examples/relu` on this machine, checked without loading
(`--no-load`). The library has 100 MB and 200 000 dynamic symbols, assembled here; it is checked
alone (`check-abi FILE`) and as the extension of a variant (`check DIR --no-load`). Each figure is
the median of several processes, start-up included. Wall time on a busy machine says more about the
machine: CPU time stands beside it.

    python benchmarks/checks.py [--save] [--json] [--built DIR]

Needs a C compiler, and, without `--built`, a package index that pip is set up for.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from report import save, table

from kbuild.digest import digest_variant
from kbuild.metadata import Metadata

RELU = Path(__file__).resolve().parents[1] / "examples" / "relu"
SIZE = 100 << 20
SYMBOLS = 200_000
ID = "_large_cpu_0a1b2c3"
RUNS = 5


def kbuild(*arguments: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command; any exit code but 0 and 6 ends the script."""
    began, used = time.perf_counter(), children()
    argv = [sys.executable, "-m", "kbuild", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: TID251
    seconds, used = time.perf_counter() - began, children() - used
    if done.returncode not in {0, 6}:
        sys.exit(f"{' '.join(argv)} failed:\n{done.stdout}\n{done.stderr}")
    return seconds, used


def children() -> float:
    """CPU seconds of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def median(*arguments: str) -> dict[str, float]:
    """Of several runs, after one that warms the file cache."""
    kbuild(*arguments)
    wall, cpu = zip(*(kbuild(*arguments) for _ in range(RUNS)), strict=True)
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


def matrix(folder: Path) -> Path:
    """`examples/relu` with every variant that this machine builds."""
    project = folder / "relu"
    shutil.copytree(RELU, project, ignore=shutil.ignore_patterns("build", ".kbuild"))
    kbuild("build", str(project))
    return project


def large(folder: Path) -> Path:
    """A variant whose extension is large."""
    root = folder / f"torch213-cxx11-cpu-{platform.machine()}-linux"
    root.mkdir()
    for name in ("__init__.py", "_ops.py"):
        (root / name).write_text("")
    assemble(folder, root / f"{ID}.abi3.so")
    metadata = Metadata("large", ID, 1, "Apache-2.0", "cpu", digest=digest_variant(root))
    (root / "metadata.json").write_text(metadata.to_json_text())
    return root


def assemble(folder: Path, target: Path) -> None:
    """A shared library of about `SIZE` bytes that exports `SYMBOLS` functions."""
    (folder / "blob").write_bytes(random.Random(0).randbytes(SIZE))  # noqa: S311
    names = [f"PyInit_{ID}", *(f"_ZN5large{len(str(n)) + 1}f{n}Ev" for n in range(SYMBOLS))]
    lines = [f".globl {name}\n.type {name},@function\n{name}: ret" for name in names]
    text = "\n".join([".text", *lines, '.section .rodata\n.incbin "blob"', NO_STACK, ""])
    (folder / "large.s").write_text(text)
    argv = ["cc", "-shared", "-o", str(target), "large.s"]
    subprocess.run(argv, cwd=folder, check=True)  # noqa: TID251
    (folder / "blob").unlink()


NO_STACK = '.section .note.GNU-stack,"",@progbits'


def measure(folder: Path, built: Path | None) -> dict[str, object]:
    """All figures, in seconds."""
    project = built or matrix(folder)
    root = large(folder)
    library = root / f"{ID}.abi3.so"
    figures = {
        "relu, built variants": median("check-builds", str(project), "--no-load"),
        "relu, sources and built variants": median("check", str(project), "--no-load"),
        "100 MB library alone": median("check-abi", str(library)),
        "100 MB library in its variant": median("check", str(root), "--no-load"),
    }
    return {
        "variants": len(variants(project)),
        "library": {"bytes": library.stat().st_size, "symbols": SYMBOLS},
        "seconds": figures,
    }


def variants(project: Path) -> Sequence[Path]:
    """Folders of built variants."""
    return [path for path in (project / "build").iterdir() if path.is_dir()]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/checks.json")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--built", type=Path, help="a copy of examples/relu that has been built")
    args = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(RELU.parents[1]))
    with tempfile.TemporaryDirectory() as name:
        result = measure(Path(name), args.built)
    seconds = result["seconds"]
    assert isinstance(seconds, dict)  # noqa: S101 - a figure by name
    targets = {name: 3.0 if name.startswith("relu") else 2.0 for name in seconds}
    result["targets"] = [
        {"what": f"{name}, seconds", "value": value["wall"], "target": targets[name]}
        for name, value in seconds.items()
    ]
    if args.save:
        save("checks", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()

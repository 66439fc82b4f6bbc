"""Counts the modules of a package that can be imported where kernels are compiled.

    python benchmarks/standin.py <environment> <package folder> [--modules ops] [--without-init]

There is neither Torch nor a GPU. The environment has Triton, and what the package imports beside
it; the folder is that of an unpacked wheel, `liger_kernel`. Each module is imported as `kbuild
build` imports a source, once for each arch, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kbuild.languages.devices import device_facts
from kbuild.languages.unit import ImageTarget
from kbuild.languages.workers import WorkerDiedError, WorkerKind, start_worker

ARCHS = ("sm_80", "sm_90a", "sm_100a", "gfx942")
WORKER = Path(__file__).parent.parent / "kbuild/languages/worker/__main__.py"
ENVIRONMENT = (("LC_ALL", "C.UTF-8"), ("PATH", "/usr/bin:/bin"))
PATIENCE = 300.0
PROCESSES = 2


def main() -> int:
    """Print what cannot be imported, and write what could."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("package", type=Path)
    parser.add_argument("--modules", default=".", help="a folder of the package")
    parser.add_argument("--language", default="triton")
    parser.add_argument("--without-init", action="store_true", help="leave out each __init__.py")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    root = args.package.resolve().parent
    files = [str(path.relative_to(root)) for path in sorted(args.package.resolve().rglob("*.py"))]
    if args.without_init:
        files = [file for file in files if not file.endswith("__init__.py")]
    below = (args.package.resolve() / args.modules).resolve()
    wanted = [file for file in files if (root / file).parent == below and "__init__" not in file]

    def imported(file: str) -> dict[str, Any]:
        return asked(args, root, [file, *(one for one in files if one != file)])

    with ThreadPoolExecutor(PROCESSES) as pool:
        found = dict(zip(wanted, pool.map(imported, wanted), strict=True))
    for file, answers in found.items():
        for arch, answer in answers.items():
            if "refusal" in answer:
                print(f"{file} {arch}: {said(answer['refusal'])}")
    counts = {arch: sum("answer" in one[arch] for one in found.values()) for arch in ARCHS}
    print(f"{counts} of {len(found)}")
    if args.out:
        rows = {file: rows_of(answers) for file, answers in found.items()}
        result = {"modules": len(found), "imported": counts, "files": rows}
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def asked(args: argparse.Namespace, root: Path, sources: list[str]) -> dict[str, Any]:
    """What a worker says of the first source, for each arch."""
    argv = [sys.executable, "-s", "-S", "-B", str(WORKER), args.language]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        worker = start_worker(
            WorkerKind((*argv, str(args.environment.resolve())), ENVIRONMENT), Path(folder)
        )
        try:
            for arch in ARCHS:
                request = {"ask": "describe", "root": str(root), "sources": sources}
                found[arch] = worker.ask({**request, "device": device(arch)}, PATIENCE)
        except WorkerDiedError as death:
            refusal = {"message": f"{death.how}: {death.said[-500:]}", "file": "", "line": 0}
            found |= {arch: {"refusal": refusal} for arch in ARCHS if arch not in found}
        finally:
            worker.close()
    return found


def device(arch: str) -> Mapping[str, Any]:
    """What the source is told of an arch."""
    return device_facts(ImageTarget.parse(arch), "rocm" if arch.startswith("gfx") else "cuda13")


def said(refusal: Mapping[str, Any]) -> str:
    """A refusal in a line."""
    return f"{refusal['file']}:{refusal['line']}: {refusal['message']}"


def rows_of(answers: Mapping[str, Any]) -> dict[str, Any]:
    """How many kernels a module has, what it asked, or why it cannot be imported."""
    first = answers[ARCHS[0]]
    if "refusal" in first:
        return {"refused": said(first["refusal"])}
    functions = first["answer"]["functions"]
    return {"kernels": len(functions), "asked": sorted(first["answer"]["asked"])}


if __name__ == "__main__":
    sys.exit(main())

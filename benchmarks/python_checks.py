"""What the checks of Python files cost on the largest pure-Python packages that there are.

Each package of the list is fetched from the package index and put, as it is, into `torch-ext/` of a
project; `kbuild check` then judges its files, with `--only ops` and with all checks. They are no
kernels: how much code there is matters, and that no shape of code takes long. A function that binds
one name again and again in terms of itself is measured beside them, with eight such lines and with
800.

    python benchmarks/python_checks.py [--package NAME==VERSION ...] [--save] [--json]

Figures are CPU seconds and the peak of the process's memory, of fresh processes. What a package of
another size may take is read off the seconds for 100,000 lines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report import save, table

PACKAGES = (
    "networkx==3.6.1",
    "sphinx==9.0.4",
    "sqlalchemy==2.1.9",
    "scipy==1.17.1",
    "django==5.2.19",
    "sympy==1.14.0",
    "transformers==5.23.0",
)
LINES = 100_000
LIMIT = 10.0
"""CPU seconds for so many lines."""
REBINDING_LIMIT = 0.5
FEW = 5
"""Runs of what takes no time."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "ops": ("--only", "ops"),
    "all checks": ("--no-load",),
}


def project(root: Path, name: str) -> Path:
    """A Python-only project whose package is still to be filled."""
    root.mkdir()
    (root / "build.toml").write_text(
        f'[general]\nname = "{name}"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        'backends = ["cpu"]\n\n[torch-noarch]\n'
    )
    package = root / "torch-ext" / name
    package.mkdir(parents=True)
    return package


def unpacked(requirement: str, folder: Path) -> Path:
    """A project that has the files of a package."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    download += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    subprocess.run(download, check=True)  # noqa: TID251
    name = requirement.partition("==")[0]
    own = f"kernel-of-{name}"
    package = project(folder / "project", own)
    package.rename(package.with_name(own.replace("-", "_")))
    package = package.with_name(own.replace("-", "_"))
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            if entry.startswith(f"{name}/") and entry.endswith(".py"):
                target = package / entry.removeprefix(f"{name}/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
    wheel.unlink()
    return folder / "project"


def rebinding(folder: Path, count: int) -> Path:
    """A project with a function that binds a name so often in terms of itself."""
    package = project(folder / "project", "rebinding")
    lines = ["def f(x):", *(f"    x = x.view({i}).contiguous()" for i in range(count))]
    (package / "__init__.py").write_text("\n".join([*lines, "    return x", ""]))
    return folder / "project"


def lines_of(root: Path) -> int:
    """Lines of Python."""
    files = root.rglob("*.py")
    return sum(file.read_bytes().count(b"\n") for file in files)


def run(root: Path, arguments: Sequence[str], cache: Path) -> dict[str, float]:
    """CPU seconds of `kbuild check`, MB of its peak, and what it found."""
    env = {**os.environ, "KBUILD_CACHE_DIR": str(cache)}
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(  # noqa: TID251 - its own usage is what is measured
            [sys.executable, "-m", "kbuild", "check", str(root), *arguments, "--json"],
            env=env,
            stdout=said,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if started.returncode not in {0, 6}:
            sys.exit(f"kbuild check {root} ended with {started.returncode}:\n{said.read()!r}")
        found = json.loads(said.read())
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak": usage.ru_maxrss * 1024 / 1e6,
        "findings": sum(map(_findings, found if isinstance(found, list) else [found])),
    }


def _findings(answer: Any) -> int:
    """How often a check is named anywhere in an answer."""
    if isinstance(answer, dict):
        return ("severity" in answer) + sum(map(_findings, answer.values()))
    return sum(map(_findings, answer)) if isinstance(answer, list) else 0


def measure(root: Path, cache: Path) -> dict[str, Any]:
    """Every command on one project; of small ones the median of several runs."""
    lines = lines_of(root)
    runs = 1 if lines > LINES // 10 else FEW
    figures = {
        name: sorted(
            (run(root, arguments, cache) for _ in range(runs)), key=lambda figure: figure["cpu"]
        )[runs // 2]
        for name, arguments in COMMANDS.items()
    }
    return {"lines": lines, **figures}


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", action="append", help="NAME==VERSION (repeatable)")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed kbuild has bytecode
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        for requirement in args.package or PACKAGES:
            folder = Path(name) / requirement
            folder.mkdir()
            figures[requirement] = measure(unpacked(requirement, folder), cache)
        for count in (8, 800):
            folder = Path(name) / f"rebinding{count}"
            folder.mkdir()
            figures[f"{count} rebindings"] = measure(rebinding(folder, count), cache)
    result = {"figures": figures, "targets": _targets(figures)}
    if args.save:
        save("python_checks", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))
    return int(any(row["value"] > row["target"] for row in result["targets"]))


def _targets(figures: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for name, figure in figures.items():
        for command in COMMANDS:
            cpu, parts = figure[command]["cpu"], max(figure["lines"] / LINES, 1)
            if name.startswith("8 "):
                limit, value, per = REBINDING_LIMIT, cpu, ""
            else:
                limit, value, per = LIMIT, cpu / parts, " for 100,000 lines" if parts > 1 else ""
            rows.append({"what": f"{name}, {command}{per}", "value": value, "target": limit})
    return rows


if __name__ == "__main__":
    sys.exit(main())

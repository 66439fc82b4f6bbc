"""Take over public packages by `kbuild migrate`, check what it wrote, and build it.

    .venv/bin/python scripts/try_sdists.py torch-spline-conv torchsort --work /tmp/sdists

For each name the sdist is downloaded by pip, from the index that pip is set to. What is taken over
is checked by `kbuild check-config`, built with `kbuild build --dev` for one backend, and imported.
The interpreter that runs this needs Torch and setuptools, because pip asks the package's
`setup.py` for its name.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

_SHOWN = 15


def main() -> int:
    """Try each package; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="package, with `==VERSION` or not")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for downloads and projects"
    )
    parser.add_argument("--backend", default="cpu", help="what is built, where the project has it")
    parser.add_argument("--no-build", action="store_true", help="check the configuration alone")
    arguments = parser.parse_args()
    verdicts = {name: _try(name, arguments) for name in arguments.names}
    print()
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict}")
    return int(any("failed" in verdict for verdict in verdicts.values()))


def _try(name: str, arguments: argparse.Namespace) -> str:
    """What came of one package, in a line."""
    work: Path = arguments.work.resolve() / name.partition("==")[0]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    print(f"== {name}", flush=True)
    if not _run("pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                "--no-build-isolation", "--dest", str(work), name):  # fmt: skip
        return "failed: no sdist"
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        sdist.extractall(work, filter="data")
    (package,) = (path for path in work.iterdir() if path.is_dir())
    return _take_over(package, work / "project", arguments)


def _take_over(package: Path, project: Path, arguments: argparse.Namespace) -> str:
    steps = (("migrate", str(package), str(project), "--no-git"),
             ("check-config", str(project)))  # fmt: skip
    for step in steps:
        if not _kbuild(*step):
            return f"failed: {step[0]}"
    text = (project / "build.toml").read_text("utf-8")
    if arguments.no_build or f'backend = "{arguments.backend}"' not in text:
        return "check-config passed; nothing built"
    if not _kbuild("build", "--dev", "--backend", arguments.backend, str(project)):
        return "failed: build"
    variant = next((project / "build").glob("*/metadata.json")).parent
    code = "import sys; from pathlib import Path; from kernels import get_local_kernel\n"
    code += "kernel = get_local_kernel(Path(sys.argv[1]), backend=sys.argv[2])\n"
    code += "print(*(name for name in dir(kernel) if name[0] != '_'))"
    is_imported = _run_command([sys.executable, "-c", code, str(project), arguments.backend])
    return f"{variant.name} was built and {'imported' if is_imported else 'failed: no import'}"


def _kbuild(*words: str) -> bool:
    return _run("kbuild", *words)


def _run(module: str, *words: str) -> bool:
    return _run_command([sys.executable, "-m", module, *words])


def _run_command(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    lines = (done.stdout + done.stderr).strip().splitlines()
    print(f"$ {' '.join(command[2:])}", *lines[-_SHOWN:], sep="\n  ", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

"""Imports the modules with kernels of some wheels as a build and a capture do, and prints verdicts.

    pip download --no-deps --dest WHEELS liger-kernel quack-kernels ...
    scripts/import_packages.py WHEELS/*.whl --with FOLDER

The kernels are in Triton or CuTe DSL, and the modules of one package are its sources. A build's
worker describes each module for compute capability 9.0; the capture's worker imports those that use
Triton. What packages need besides is in the folders of `--with`; other modules that are missing
are reported by name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbuild.dsl.devices import device_facts, vendor_facts
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.language import LANGUAGES
from kbuild.ops.unit import ImageTarget
from kbuild.system.cache_folder import cache_folder
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller

ROOT = Path(__file__).resolve().parents[1]
KERNEL = {
    "triton": re.compile(r"^ *@(?:triton\.|gluon\.)?jit\b", re.MULTILINE),
    "cute": re.compile(r"^ *@cute\.(?:jit|kernel)\b", re.MULTILINE),
}
PINS = {"triton": ("triton==3.9.0",), "cute": ("nvidia-cutlass-dsl==4.8.1",)}
DEVICE = device_facts(ImageTarget.parse("sm_90"), "cuda13") | vendor_facts("cuda")
SECONDS = 120
MISSING = re.compile(r"No module named '([\w.]+)'")
CAPTURE = """
import json, os, sys
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.worker.imports import AskedAtImportError, imported_function
from kbuild.plugins.capture.worker.runs import RunDevice
def verdict(path, folder, device):
    try:
        imported_function(path, [folder], RunDevice(device))
    except AskedAtImportError as error:
        return "asks"
    except CaptureError as error:
        return f"{error.place}: {error.message}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    (read, write), request = os.pipe(), json.loads(line)
    if not os.fork():
        said = verdict(*request)
        os.write(write, json.dumps(said).encode()[:60000])
        os._exit(0)
    os.close(write)
    said = os.fdopen(read).read() or '"the process ended"'
    os.wait()
    print(said, file=out, flush=True)
"""


class Program:
    """A process that answers a line of JSON with one."""

    def __init__(self, command: Sequence[str], folders: Sequence[str], **options: Any) -> None:
        self._command, self._options = command, options
        self._env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(folders)}
        self._process: Any = None

    def ask(self, request: Any) -> Any:
        """The answer; None where the process ended, twice: one that is idle ends by itself."""
        answer = self._ask(request)
        return self._ask(request) if answer is None else answer

    def _ask(self, request: Any) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: TID251 - it is asked several times
                self._command, env=self._env | {"HOME": tempfile.mkdtemp()}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                **self._options,
            )  # fmt: skip
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self._process.kill()
            self._process = None
            return None

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()


def kernel_modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Language and file of every module with kernels."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8", "replace")
        for language, pattern in KERNEL.items():
            if pattern.search(text):
                yield language, path.relative_to(folder).as_posix()
                break


def build_verdict(worker: Program, folder: Path, sources: Sequence[str]) -> str:
    """What a build's worker says of the first source; empty where it describes it."""
    request = {"id": 1, "ask": "describe", "root": str(folder), "sources": sources}
    answer = worker.ask({**request, "device": DEVICE})
    if answer is None:
        return "the process ended"
    refusal = answer.get("refusal")
    return f"{refusal['file']}:{refusal['line']}: {refusal['message']}" if refusal else ""


def capture_verdict(worker: Program, folder: Path, module: str) -> str:
    """What the capture's worker says of a module, also for a known arch if it asks for one."""
    path = f"{module}:__name__"
    said = worker.ask([path, str(folder), vendor_facts("cuda")])
    said = worker.ask([path, str(folder), DEVICE]) if said == "asks" else said
    return "the process ended" if said is None else str(said)


def module_of(file: str) -> str:
    """The module of a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def summary(verdicts: Mapping[str, str]) -> tuple[str, Counter[str], list[str]]:
    """How many are imported, the modules that others miss, and other verdicts with their files."""
    missing: Counter[str] = Counter()
    others = []
    for file, verdict in verdicts.items():
        if match := MISSING.search(verdict):
            missing[match[1].partition(".")[0]] += 1
        elif verdict:
            others.append(f"{file}: {verdict[:400]}")
    fine = sum(not verdict for verdict in verdicts.values())
    return f"{fine}/{len(verdicts)}", missing, others


def main() -> None:
    """Try each wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--with", dest="folders", action="append", default=[])
    parser.add_argument("--most", type=int, default=40, help="modules of a package")
    options = parser.parse_args()
    environments = DslEnvironments(
        WheelInstaller(LocalRunner(), open_store(cache_folder(os.environ)))
    )
    roots = {
        name: str(environments.provide(name, LANGUAGES.get(name).environment(pins, "cuda13")).root)
        for name, pins in PINS.items()
    }
    for wheel in options.wheels:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
            one_package(wheel.name.partition("-")[0], Path(folder), roots, options)


def one_package(
    name: str, folder: Path, roots: Mapping[str, str], options: argparse.Namespace
) -> None:
    """Print two rows for a package, and each verdict that is no module's absence."""
    found = [*kernel_modules(folder)]
    step = max(1, -(-len(found) // options.most))
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    files = [p.as_posix() for p in paths if all(n.isidentifier() for n in p.with_suffix("").parts)]
    main_file = ROOT / "kbuild" / "languages" / "worker" / "__main__.py"
    life, other = os.pipe()
    workers = {
        language: Program(
            (sys.executable, "-s", "-S", "-B", str(main_file), language, root, str(life)),
            [*options.folders, *roots.values()], pass_fds=(life,), start_new_session=True,
        )
        for language, root in roots.items()
    }  # fmt: skip
    torch = next(path for path in sys.path if Path(path, "torch").is_dir())
    capture = Program(
        (sys.executable, "-c", CAPTURE),
        (str(folder), roots["triton"], *options.folders, str(ROOT), torch),
    )
    built, captured = {}, {}
    for language, file in found[::step]:
        sources = [file, *(other for other in files if other != file)]
        built[file] = build_verdict(workers[language], folder, sources)
        if language == "triton":
            captured[file] = capture_verdict(capture, folder, module_of(file))
    for program in (*workers.values(), capture):
        program.stop()
    os.close(other)
    os.close(life)
    for title, verdicts in (("build", built), ("capture", captured)):
        count, missing, others = summary(verdicts)
        needs = ", ".join(f"{module} ({n})" for module, n in missing.most_common())
        print(f"| {name} | {title} | {count} | {needs} | {len(others)} |", flush=True)
        for line in others:
            print(f"    {line}", flush=True)


if __name__ == "__main__":
    main()

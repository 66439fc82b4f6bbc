"""Tests and checks on a cluster: a worker that fits a variant tests or loads it, and is named."""

from __future__ import annotations

import json
import platform
import site
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import Process, cluster
from tests.support.command_project import CommandProject, write_files
from tests.support.interpreters import make_interpreter

pytestmark = [pytest.mark.torch]
pytest.importorskip("distributed")
HERE = f"cxx11-cpu-{platform.machine()}-linux"
OLD, NEW, NOBODY = f"torch213-{HERE}", f"torch299-{HERE}", f"torch21-{HERE}"
BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
TESTS = """\
import os
from pathlib import Path
import pytest
import demo

def test_good():
    assert demo.VARIANT == Path(demo.__file__).resolve().parent.name

def test_only_old():
    assert "213" in demo.VARIANT, "this is not the old one"

@pytest.mark.skip(reason="never")
def test_skipped(): pass

def test_nothing_private_is_here():
    root = Path(__file__).parents[1]
    assert not (root / ".env").exists() and not (root / "build").exists()
    assert (root / "data" / "input.txt").read_text() == "data"
    assert "NAME_OF_TEST" not in os.environ
"""
SLOW = """\
import time
from pathlib import Path

def test_slow():
    mark = Path({mark!r})
    is_first = not mark.exists()
    mark.touch()
    time.sleep({seconds} if is_first else 0)
"""


def write_project(folder: Path, *variants: str, tests: str = TESTS) -> CommandProject:
    files = {
        "build.toml": BUILD,
        "torch-ext/demo/__init__.py": "raise RuntimeError('the sources')\n",
        "tests/test_demo.py": tests,
        "data/input.txt": "data",
        ".env": "PASSWORD=hunter2\n",
    }
    facts = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT"}
    metadata = json.dumps({**facts, "python-depends": [], "backend": {"type": "cpu"}})
    for name in variants:
        files[f"build/{name}/__init__.py"] = f"VARIANT = {name!r}\n"
        files[f"build/{name}/_ops.py"] = ""
        files[f"build/{name}/metadata.json"] = metadata
    write_files(folder / "project", files)
    return CommandProject(folder / "project", folder / "cache")


@dataclass(frozen=True)
class Running:
    """A cluster of two workers, whose interpreters have Torch 2.13 and 2.99."""

    folder: Path
    address: str
    processes: list[Process]

    def test(
        self, bench: CommandProject, *arguments: str, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run(bench, "test", *arguments, **environ)

    def run(
        self, bench: CommandProject, command: str, *arguments: str, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        credentials = str(self.folder / "cluster" / "credentials.pem")
        env = {"KBUILD_CLUSTER_CREDENTIALS": credentials, **environ}
        return bench.run(command, "--executor", self.address, *arguments, env=env)


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Interpreters with a `torch` of a few lines, and this one's pytest."""
    made = []
    for release in ("2.13.0", "2.99.0"):
        interpreter = make_interpreter(tmp_path_factory.mktemp("python") / "venv")
        files = {
            "torch/version.py": f"__version__ = '{release}'\n",
            "torch/__init__.py": "from torch.version import __version__\n"
            "class cuda:\n    is_available = staticmethod(lambda: False)\n",
            "other.pth": "\n".join(site.getsitepackages()),
        }
        write_files(interpreter.packages, files)
        made.append(interpreter.python)
    return tuple(made)


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, pythons: tuple[Path, ...]
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("cluster") / "cluster"
    with cluster(folder, 2, pythons) as (address, processes):
        time.sleep(1)
        yield Running(folder, address, processes)


def test_each_variant_is_tested_where_it_fits(tmp_path: Path, running: Running) -> None:
    bench = write_project(tmp_path, OLD, NEW, NOBODY)
    done = running.test(bench, "--json", NAME_OF_TEST="secret-of-user")
    assert done.returncode == 8, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    reports = {entry["variant"]: entry for entry in answer["variants"]}
    counts = {
        name: (entry["worker"], entry["passed"], entry["failed"], entry["skipped"])
        for name, entry in reports.items()
    }
    assert counts == {OLD: ("w0", 3, 0, 1), NEW: ("w1", 2, 1, 1)}, done.stderr
    assert [entry["torch"] for entry in reports.values()] == ["2.13.0", "2.99.0"]
    ((untested),) = answer["untested"]
    assert untested["variant"] == NOBODY
    assert [reason.partition(":")[0] for reason in untested["reasons"]] == [
        "worker w0",
        "worker w1",
    ]
    assert f"no worker fits {NOBODY}" in done.stderr
    assert done.stderr.count("test_demo.py::test_only_old") == 2  # pytest's output, and the error
    assert f"{NEW} on worker w1: FAILED" in done.stderr
    texts = [path for path in running.folder.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in texts]
    assert not any(b"hunter2" in content or b"secret-of-user" in content for content in contents)


def test_tests_that_hang_are_ended(tmp_path: Path, running: Running) -> None:
    slow = SLOW.format(mark=str(tmp_path / "mark"), seconds=120)
    bench, began = write_project(tmp_path, OLD, tests=slow), time.monotonic()
    done = running.test(bench, KBUILD_CLUSTER_UNIT_TIME="5s")
    assert done.returncode == 8, done.stderr
    assert "worker w0: the time limit was reached" in done.stderr
    assert time.monotonic() - began < 60

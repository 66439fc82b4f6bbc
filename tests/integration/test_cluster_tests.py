"""Tests and checks on a cluster: a worker that fits a variant tests or loads it, and is named."""

from __future__ import annotations

import json
import platform
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.support.clusters import Process, cluster
from tests.support.command_project import CommandProject
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


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


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


def suites(file: Path) -> dict[str, ET.Element]:
    root = ET.parse(file).getroot()  # noqa: S314
    assert root.tag == "testsuites"
    found = {str(suite.get("name")): suite for suite in root}
    for name in ("tests", "failures", "errors", "skipped"):
        assert root.get(name) == str(sum(int(suite.get(name, "0")) for suite in root))
    return found


def test_each_variant_is_tested_where_it_fits(tmp_path: Path, running: Running) -> None:
    bench = write_project(tmp_path, OLD, NEW, NOBODY)
    done = running.test(bench, "--json", "--junit", "report.xml", NAME_OF_TEST="secret-of-user")
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
    found = suites(bench.root / "report.xml")
    hosts = {name: suite.get("hostname") for name, suite in found.items()}
    assert hosts == {OLD: "w0", NEW: "w1", NOBODY: None}
    assert found[NOBODY].get("skipped") == "1"
    assert "worker w1: " in str(found[NOBODY].findtext("testcase/skipped"))
    assert found[NEW].get("tests") == "4"
    assert len(found[NEW].findall("testcase/failure")) == int(found[NEW].get("failures", "0")) == 1
    texts = [path for path in running.folder.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in texts]
    assert not any(b"hunter2" in content or b"secret-of-user" in content for content in contents)


def test_what_nobody_fits_is_no_success(tmp_path: Path, running: Running) -> None:
    bench = write_project(tmp_path, OLD, NOBODY)
    done = running.test(bench)
    assert done.returncode == 4, done.stderr
    assert "1 of 2 variants were not tested" in done.stderr
    assert running.test(bench, "--variant", OLD).returncode == 0


def test_tests_that_hang_are_ended(tmp_path: Path, running: Running) -> None:
    slow = SLOW.format(mark=str(tmp_path / "mark"), seconds=120)
    bench, began = write_project(tmp_path, OLD, tests=slow), time.monotonic()
    done = running.test(bench, "--junit", "report.xml", KBUILD_CLUSTER_UNIT_TIME="5s")
    assert done.returncode == 8, done.stderr
    assert "worker w0: the time limit was reached" in done.stderr
    assert time.monotonic() - began < 60
    assert suites(bench.root / "report.xml")[OLD].get("errors") == "1"


def loads(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What `check-builds --json` says of the worker that loaded each variant."""
    (target,) = json.loads(done.stdout)["targets"]
    return {e["name"]: e["facts"].get("load", {}).get("worker", {}) for e in target["outputs"]}


def test_variants_are_loaded_where_they_fit(tmp_path: Path, running: Running) -> None:
    bench = write_project(tmp_path, OLD, NEW, NOBODY)
    code = bench.root / "build" / NEW / "__init__.py"
    code.write_text("import torch\nassert torch.__version__ == '2.99.0'\n")
    only = ("--only", "load", "--load")
    for more, remembered in ((), False), ((), True), (("--fresh",), False):
        done = running.run(bench, "check-builds", *only, *more, "--json")
        assert done.returncode == 0, done.stderr
        python = platform.python_version()
        facts = {"python": python, "remembered": remembered}
        assert loads(done) == {
            OLD: {"worker": "w0", "torch": "2.13.0", **facts},
            NEW: {"worker": "w1", "torch": "2.99.0", **facts},
            NOBODY: {},
        }, done.stderr
        assert f"so this machine does:\n    {NOBODY}: worker w0: " in done.stderr
    code.write_text("raise RuntimeError('broken')\n")
    done = running.run(bench, "check", *only, "--variant", NEW)
    assert done.returncode == 6, done.stderr
    assert f"{NEW}  w1" in done.stdout
    assert f"on worker w1 (Python {python}, Torch 2.99.0): cannot be loaded:" in done.stdout
    assert "RuntimeError: broken" in done.stdout


def test_a_report_of_tests_here(tmp_path: Path) -> None:
    bench = write_project(tmp_path, OLD)
    (bench.root / ".env").unlink()
    arguments = ("--variant", OLD, "--python", sys.executable, "--junit", "report.xml")
    done = bench.run("test", *arguments, "--", "-k", "good or skipped")
    assert done.returncode == 0, done.stderr
    suite = suites(bench.root / "report.xml")[OLD]
    assert (suite.get("tests"), suite.get("skipped"), suite.get("failures")) == ("2", "1", "0")


def test_a_worker_that_is_killed_gives_its_tests_to_another(
    tmp_path: Path, pythons: tuple[Path, ...]
) -> None:
    mark, folder = tmp_path / "mark", tmp_path / "cluster"
    bench = write_project(tmp_path, OLD, tests=SLOW.format(mark=str(mark), seconds=60))
    same = (pythons[0], pythons[0])
    with cluster(folder, 2, same) as (address, processes), ThreadPoolExecutor() as pool:
        asked = pool.submit(Running(folder, address, processes).test, bench, "--json")
        until = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.05)
        (name,) = {path.parts[-4] for path in folder.glob("workers/*/projects/*/tests")}
        logs = [(folder / f"worker{number}.log").read_text() for number in range(2)]
        (victim,) = [p for p, log in zip(processes, logs, strict=True) if f"/{name}" in log]
        victim.kill()
        done = asked.result()
        assert victim.wait() == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    ((report),) = json.loads(done.stdout)["variants"]
    assert report["passed"] == 1
    assert "has gone; its 1 units go to others" in done.stderr

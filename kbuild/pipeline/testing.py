"""Runs a project's tests against a built variant, on this machine and on workers alike.

The tests run in a fresh process. `LOCAL_KERNELS` tells the `kernels` client to take the variant
instead of a download, and the variant can be imported by the kernel's name: never the sources in
`torch-ext`, which lack what is generated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from kbuild.checks.probe_process import run_probe
from kbuild.system.errors import DamagedFileError, UsageError
from kbuild.system.processes import LineListener, ProcessResult, Runner
from kbuild.system.temporary import temporary_folder
from kbuild.system.untrusted import reading

NO_TESTS = 5
"""Exit code of pytest when it collected nothing."""
USAGE_ERROR = 4
"""Exit code of pytest for arguments that it rejects."""
ALL_SKIPPED = 77
"""Exit code of our plug-in when every test was skipped, as test harnesses of Automake have it."""
CI_MARKER = "kernels_ci"
NO_PYTEST = "No module named pytest"
TEST_FOLDERS = ("tests", "test")
_ENTITIES = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
_COUNTS = ("tests", "failures", "errors", "skipped")
_PLUGIN = "kbuild_tested_kernel"
_OWN_PLUGIN = "kbuild"
"""The entry point of the plug-in that builds kernels; the interpreter may have no kbuild."""
_FINDER = """\
import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest


class TestedKernel:
    \"\"\"Finds the built variant by the kernel's name, before any folder of that name.\"\"\"

    @staticmethod
    def find_spec(name, path=None, target=None):
        here = str(Path(__file__).parent)
        return PathFinder.find_spec(name, [here]) if name == {name!r} else None


sys.meta_path.insert(0, TestedKernel)
outcomes = set()


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    \"\"\"Leave Torch's records for its trace files, which have no message, out of failures.\"\"\"
    plugin = config.pluginmanager.get_plugin("logging-plugin")
    handler = getattr(plugin, "report_handler", None)
    if handler is not None:
        handler.addFilter(lambda record: record.name != "torch.__trace")


def pytest_collectreport(report):
    \"\"\"Note a module that skips itself.\"\"\"
    if report.skipped:
        outcomes.add("skipped")


def pytest_runtest_logreport(report):
    \"\"\"Note what came of a test; one that fails as expected was tested.\"\"\"
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped or report.when == "call":
        outcomes.add("skipped" if skipped else "tested")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    \"\"\"Say by the exit status that nothing was tested.\"\"\"
    if exitstatus in (0, {no_tests}) and outcomes == {{"skipped"}}:
        session.exitstatus = {all_skipped}


def pytest_addoption(parser):
    \"\"\"Take the option of kbuild's own plug-in, which a project may always give.\"\"\"
    parser.addoption("--kbuild", nargs="?", const="")


@pytest.fixture(scope="session")
def kernel():
    \"\"\"The built variant.\"\"\"
    return importlib.import_module({name!r})
"""


def local_kernels(repo_id: str, place: Path, environ: Mapping[str, str]) -> str:
    """Write `LOCAL_KERNELS` with one more kernel: the client loads it from a folder.

    The user's own entries stay: kernels that this one depends on may be local as well.
    """
    return ":".join(filter(None, (environ.get("LOCAL_KERNELS"), f"{repo_id}={place}")))


@dataclass(frozen=True)
class ProjectTests:
    """The tests of a project, wherever its folder is."""

    __test__ = False

    name: str
    """Name of the kernel, as Python imports it."""
    repo_id: str
    """Repository that the tests ask the client for."""
    marked: bool = False
    """True to run only the tests that are marked for CI."""
    rest: tuple[str, ...] = ()
    allow_skipped: bool = False
    """True to accept that every test was skipped."""

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ProjectTests:
        """Read the fields that `asdict` gave."""
        return cls(**{**facts, "rest": tuple(facts["rest"])})

    def folder(self, root: Path) -> Path:
        """The folder of the tests of the project in `root`.

        Raises:
            UsageError: there is no such folder.
        """
        for name in TEST_FOLDERS:
            if (root / name).is_dir():
                return root / name
        hint = "`kbuild init` writes tests to start from"
        raise UsageError(f"`{root / TEST_FOLDERS[0]}` does not exist", hint=hint)

    def arguments(self, root: Path) -> tuple[str, ...]:
        """The arguments of pytest; files that were requested replace the folder.

        Raises:
            UsageError: see `folder`.
        """
        named = [part.partition("::")[0] for part in self.rest if not part.startswith("-")]
        paths = [part for part in named if part.endswith(".py") or os.sep in part]
        is_chosen = any((root / path).exists() for path in paths)
        places = () if is_chosen else (str(self.folder(root)),)
        marked = ("-m", CI_MARKER) if self.marked else ()
        # kbuild's own plug-in would build the kernel; here the built variant is tested.
        plugins = ("no:cacheprovider", f"no:{_OWN_PLUGIN}", _PLUGIN)
        options = tuple(word for name in plugins for word in ("-p", name))
        return (*places, *marked, *options, f"--rootdir={root}", *self.rest)

    def variables(self, folder: Path, place: Path, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that pytest needs beside `environ`.

        Args:
            folder: see `import_folder`.
            place: the folder of all variants, or the one that was chosen.
            environ: with the user's `PYTHONPATH` and `LOCAL_KERNELS`.
        """
        paths = filter(None, (str(folder), environ.get("PYTHONPATH")))
        return {
            "LOCAL_KERNELS": local_kernels(self.repo_id, place, environ),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(paths),
        }


@dataclass(frozen=True)
class TestProcess:
    """The command and variables of pytest."""

    __test__ = False

    runner: Runner
    python: Path
    environ: Mapping[str, str]
    junit: Path | None = None
    before: tuple[str, ...] = ()
    """Words in front of the command."""
    listen: LineListener | None = None

    def run(
        self, tests: ProjectTests, root: Path, place: Path, variant: Path | None
    ) -> ProcessResult:
        """Run the tests of the project in `root`.

        Args:
            tests: which.
            root: the project's folder, where pytest runs.
            place: the folder of all variants, or the one that was chosen.
            variant: the one that can be imported; None where nobody can tell.

        Raises:
            UsageError: the project has no tests.
        """
        arguments = tests.arguments(root)
        if self.junit is not None:
            arguments = (*arguments, f"--junitxml={self.junit}")
        with import_folder(tests.name, variant) as folder:
            own = tests.variables(folder, place, self.environ)
            argv = (*self.before, str(self.python), "-m", "pytest", *arguments)
            env = {**self.environ, **own}
            done = self.runner.run(argv, cwd=root, env=env, listen=self.listen)
        if done.returncode == ALL_SKIPPED and tests.allow_skipped:
            return replace(done, returncode=0)
        return done


@contextmanager
def import_folder(name: str, variant: Path | None) -> Iterator[Path]:
    """A folder for `PYTHONPATH` where the variant has the kernel's name, with pytest's plug-in."""
    with temporary_folder("test") as folder:
        if variant is not None:
            (folder / name).symlink_to(variant, target_is_directory=True)
        plugin = _FINDER.format(name=name, no_tests=NO_TESTS, all_skipped=ALL_SKIPPED)
        (folder / f"{_PLUGIN}.py").write_text(plugin, encoding="utf-8")
        yield folder


@dataclass(frozen=True)
class TestReport:
    """The outcome of the tests of one variant."""

    __test__ = False

    variant: str
    status: int
    """Exit code of pytest."""
    output: str
    seconds: float
    suite: ET.Element | None = None
    """pytest's report; None when it wrote none."""
    worker: str = ""
    """Name of the worker; empty on this machine."""
    torch: str = ""
    device: str = ""
    """Model of the GPU; empty for a processor."""
    hung: bool = False
    """True if the time limit ended the tests."""

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Numbers of `passed`, `failed` (with errors) and `skipped` tests."""
        suite = self.suite
        numbers = [int(suite.get(name, 0)) if suite is not None else 0 for name in _COUNTS]
        total, failures, errors, skipped = numbers
        failed = failures + errors
        return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}

    @property
    def place(self) -> str:
        """The place of the run, for messages: `on worker w0`, or `with Torch 2.13.0`."""
        return f"on worker {self.worker}" if self.worker else f"with Torch {self.torch}"

    @property
    def ok(self) -> bool:
        """True when every test passed."""
        return self.status == 0

    @property
    def failures(self) -> list[str]:
        """pytest's one-line summaries of what did not pass; else how it ended."""
        lines = failure_lines(self.output)
        if self.ok or lines:
            return lines
        if self.status == NO_TESTS:
            return ["pytest found no test"]
        if self.status == ALL_SKIPPED:
            return ["every test was skipped"]
        return ["the time limit was reached" if self.hung else f"pytest ended with {self.status}"]

    def to_json(self) -> dict[str, Any]:
        """The report without the output of tests that passed."""
        return {
            "variant": self.variant,
            "worker": self.worker,
            "torch": self.torch,
            "device": self.device,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            **self.counts,
            "failures": self.failures,
        }


def failure_lines(output: str) -> list[str]:
    """pytest's one-line summaries of what did not pass."""
    return [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]


def parse_junit(data: bytes) -> ET.Element | None:
    """The one suite of a report of pytest; None when it is no such report."""
    try:
        with reading("the report", "a report of pytest"):
            # Nested entities can fill the memory; pytest writes none.
            if _ENTITIES.search(data):
                raise ValueError("it declares entities")
            root = ET.fromstring(data)  # noqa: S314 - no entities
            # Old releases of pytest do not wrap the suite in `testsuites`.
            suite = root if root.tag == "testsuite" else root.find("testsuite")
            if suite is not None and any(int(suite.get(name, 0)) < 0 for name in _COUNTS):
                raise ValueError("it counts less than no test")
            return suite
    except (DamagedFileError, ET.ParseError):
        return None


@dataclass(frozen=True)
class VariantCompatibility:
    """The client's answer about some variants of one kernel."""

    chosen: str | None = None
    """The variant that the client would load."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason for each variant that the client cannot load."""
    unknown: str = ""
    """Reason why the client could not be asked; empty if it was."""


def check_compatibility(
    variants: Sequence[str], python: Path, runner: Runner
) -> VariantCompatibility:
    """Ask the client of an interpreter about variants of one kernel."""
    answer = run_probe(runner, python, "fit_probe", *variants)
    if answer.state != "ok":
        reason = answer.reason.partition("\n")[0]
        return VariantCompatibility(unknown=f"the kernels client cannot be asked: {reason}")
    return VariantCompatibility(answer.facts["chosen"], answer.facts["refused"])

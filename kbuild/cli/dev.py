"""`kbuild dev`: builds and tests the project again whenever one of its files changes."""

from __future__ import annotations

import os
import signal
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kbuild.build.unit_log import UNIT_LOG_FILE, read_log
from kbuild.cli.bench import chosen_device
from kbuild.cli.parser import add_kernel_dir
from kbuild.cli.tune_build import options_for_devices, single_variant
from kbuild.cli.variants import add_python, chosen_python
from kbuild.dsl.tune.host import ProbeHost
from kbuild.pipeline.build import build
from kbuild.pipeline.testing import ALL_SKIPPED, NO_TESTS, TEST_FOLDERS, ProjectTests, import_folder
from kbuild.plan.project import Project, open_project
from kbuild.system.errors import KbuildError, ToolchainError, UsageError
from kbuild.system.services import Services
from kbuild.system.workspace import Workspace

if TYPE_CHECKING:
    from kbuild.dsl.bench.results import BenchmarkResults
    from kbuild.dsl.tune.host import AvailableDevices, Device

FileStamp = tuple[int, int, int]
"""Time of the last change (ns), size and inode; not the time of a new link to the file."""
_FOLDERS = {"__pycache__", "build", "node_modules"}
"""Folders of generated files, besides those whose names begin with a dot."""
_LEFTOVERS = ("*~", "*.swp", "*.swx", "*.swo", "*.tmp", "*.pyc", "4913", "#*#")
"""Patterns of files that editors and interpreters write beside others."""
_PAUSE_S = 0.1
_SETTLED_S = 0.02
"""An editor that replaces a file by another is done after so long without a change."""


class FolderWatcher:
    """Knows a state of the folder's files, and waits for another one.

    It looks ten times a second: events of the system do not come from network file systems.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._known = self._snapshot()

    def changes(self) -> tuple[str, ...]:
        """Files that differ from when this was last asked, relative to the folder, in order."""
        known, self._known = self._known, self._settled()
        paths = known.keys() | self._known.keys()
        return tuple(sorted(p for p in paths if known.get(p) != self._known.get(p)))

    def has_changed(self) -> bool:
        """True if `changes` would return something."""
        return self._snapshot() != self._known

    def wait(self) -> tuple[str, ...]:
        """The next changes, at least one."""
        while True:
            if changed := self.changes():
                return changed
            time.sleep(_PAUSE_S)

    def _settled(self) -> Mapping[str, FileStamp]:
        current = self._snapshot()
        # A save may take several steps (write beside, rename): wait for a state that lasts.
        while current != self._known:
            time.sleep(_SETTLED_S)
            before, current = current, self._snapshot()
            if before == current:
                break
        return current

    def _snapshot(self) -> Mapping[str, FileStamp]:
        return dict(_files(self._root, ""))


def _files(folder: str, prefix: str) -> Iterator[tuple[str, FileStamp]]:
    """Path and state of each file; files that disappear meanwhile are left out."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if not name.startswith(".") and name not in _FOLDERS:
                    yield from _files(entry.path, f"{prefix}{name}/")
            elif not any(fnmatchcase(name, pattern) for pattern in _LEFTOVERS):
                with suppress(OSError):
                    status = entry.stat()
                    yield f"{prefix}{name}", (status.st_mtime_ns, status.st_size, status.st_ino)


_TESTS = "kbuild.dsl.tune.probes.project_tests"
_WARM = ("pytest", "_pytest.python", "_pytest.terminal", "_pytest.fixtures", "_pytest.assertion")
_POLL_S = 0.1
_SHOWN_PATHS = 3


def start_host(ctx: Services, root: Path, python: Path) -> ProbeHost:
    """The process that imports Torch and pytest, not entered yet."""
    space = Workspace(root, "dev")
    space.prepare()
    log = space.logs / "workers.txt"
    return ProbeHost(ctx.runner, python, root, log, modules=_WARM, listen=ctx.ui.say)


@dataclass
class DevSession:
    """The state of one `kbuild dev`."""

    ctx: Services
    root: Path
    host: ProbeHost
    device_name: str | None
    rest: tuple[str, ...]
    """Arguments of pytest."""
    has_bench: bool = False
    _variant: Path | None = None
    """Variant of the last build; None when it failed."""
    _shown_error: KbuildError | None = None
    """Error that the build itself has shown."""
    _ratios: dict[str, float] = field(default_factory=dict)
    """Workload -> its time, by that of its reference if there is one, when it was first measured:
    what slows the whole machine down says nothing about the kernel."""

    def run(self) -> None:
        """Build and test, and again after each change; ends with an exception alone.

        Raises:
            ToolchainError: the interpreter has no Torch.
        """
        self._watcher = FolderWatcher(self.root)
        changed: tuple[str, ...] = ()
        while True:
            self._follow(changed)
            if changed := self._watcher.changes():
                continue  # saved meanwhile
            self.ctx.ui.say("waiting for changes; Ctrl-C ends")
            changed = self._watcher.wait()

    def _follow(self, changed: tuple[str, ...]) -> None:
        """Build and test again as far as a change requires it; everything at first."""
        ui, began = self.ctx.ui, time.monotonic()
        ui.clear()
        paths = ", ".join(changed[:_SHOWN_PATHS])
        more = len(changed) - _SHOWN_PATHS
        ui.say(f"{time.strftime('%H:%M:%S')} {paths or self.root.name}" + f" +{more}" * (more > 0))
        tests = _tests_among(self.root, changed)
        try:
            project = open_project(self.root)
            device = chosen_device(self.device_name, project, self._devices)
            if not tests or self._variant is None:
                # A build that fails must not leave the variant of the build before.
                self._variant = None
                self._variant = self._build(project, device)
            is_good = self._test(project, self._variant, tests, began)
            if is_good and self.has_bench:
                self._measure(self._variant, device)
        except KbuildError as error:
            # Without the process that has imported Torch, no later change can be tested either.
            if self.host.has_ended:
                raise
            if error is not self._shown_error:
                ui.error(error)

    @cached_property
    def _devices(self) -> AvailableDevices:
        return self.host.devices()

    def _build(self, project: Project, device: Device) -> Path:
        options = options_for_devices(self.ctx, project, self.host.python, [device], purpose="dev")
        began = time.time()
        results = build(project, options, self.ctx)
        for line in _compiled_units(project.root, began):
            self.ctx.ui.say(f"  {line}")
        for result in results:
            if result.error is not None:
                self._shown_error = result.error  # by the build itself
            elif result.path is not None:
                self.ctx.ui.say(f"{result.variant}: {result.status} in {result.seconds:.1f} s")
        return single_variant(results, device)

    def _test(self, project: Project, variant: Path, files: Sequence[str], began: float) -> bool:
        """Run the tests of some files, else all; True when none failed."""
        ui = self.ctx.ui
        hub = project.file.general.hub
        repo_id = (hub.repo_id if hub else None) or project.name
        tests = ProjectTests(project.python_name, repo_id, rest=(*files, *self.rest))
        try:
            arguments = ("-q", "--no-header", "--tb=short", *tests.arguments(self.root))
        except UsageError as error:
            ui.say(f"not tested: {error.message}")
            return True
        with import_folder(tests.name, variant) as folder:
            variables = tests.variables(folder, variant, os.environ)
            code, seconds = self._run_pytest(arguments, variables, began)
        if code is None:
            ui.say("tests stopped: a file was saved")
        elif code == NO_TESTS:
            ui.say("not tested: pytest found no test")
        elif code == ALL_SKIPPED:
            ui.say("not tested: every test was skipped")
        elif code:
            ui.say(f"tests failed after {seconds:.1f} s")
        else:
            ui.say(f"tests passed in {seconds:.1f} s")
        return code in {0, NO_TESTS, ALL_SKIPPED}

    def _run_pytest(
        self, arguments: Sequence[str], variables: Mapping[str, str], began: float
    ) -> tuple[int | None, float]:
        """pytest's exit code and its seconds; None when a file was saved, which ends the tests.

        Raises:
            ToolchainError: the interpreter has no pytest, or the tests ended the process.
        """
        connection = self.host.connect()
        settings = {"program": _TESTS, "root": str(self.root), "environ": variables}
        name = connection.start(settings)
        connection.send({"to": name, "job": {"id": name, "arguments": arguments}})
        connection.send({"stop": name})
        started, pid, code = time.monotonic(), 0, None
        while True:
            answer = connection.receive(_POLL_S)
            if "testing" in answer:
                started, pid = time.monotonic(), answer["pid"]
                self.ctx.ui.say(f"testing, {started - began:.2f} s after the change was seen")
            elif "error" in answer:
                hint = f"{self.host.python} -m pip install pytest"
                raise ToolchainError(f"`{self.host.python}` has no pytest", hint=hint)
            elif "done" in answer:
                code = int(answer["code"])
            elif "ended" in answer:
                if code is None and not self._watcher.has_changed():
                    raise ToolchainError(f"the tests ended the process: {answer['code']}")
                return code, time.monotonic() - started
            elif pid and code is None and self._watcher.has_changed():
                with suppress(ProcessLookupError):
                    # The tests are about code that is outdated: do not wait for them.
                    os.kill(pid, signal.SIGKILL)

    def _measure(self, variant: Path, device: Device) -> None:
        """Measure the benchmarks once, and compare with the session's first times."""
        from kbuild.dsl.bench.results import table_of
        from kbuild.dsl.bench.session import BenchmarkSession, find_scripts

        ui = self.ctx.ui
        sides = {"kernel": variant}
        session = BenchmarkSession(
            self.host, self.root, find_scripts(self.root), sides, device.id, processes=1
        )
        with ui.progress(f"measuring on {device.name}", 0) as progress:
            results = session.perform(progress)
        headers, rows = table_of(results)
        changes = list(self._changes(results))
        ui.table(
            (*headers, "since start"),
            [(*row, change) for row, change in zip(rows, changes, strict=True)],
        )
        for problem in results.problems():
            ui.warn(problem)

    def _changes(self, results: BenchmarkResults) -> Iterator[str]:
        from kbuild.dsl.bench.results import KERNEL, REFERENCE

        for workload in results.measured:
            time_ratio = 1 / (workload.ratio(REFERENCE) or 1 / workload.sides[KERNEL].median)
            first = self._ratios.setdefault(workload.name, time_ratio)
            yield f"{time_ratio / first - 1:+.1%}"


def _compiled_units(root: Path, since: float) -> Iterator[str]:
    """The units that the build since then compiled, with their times."""
    log = Workspace.report_of(root) / UNIT_LOG_FILE
    if log.is_file() and log.stat().st_mtime >= since:
        for unit in read_log(log).units:
            if unit.cache != "hit":
                failed = " failed" if unit.status else ""
                yield f"{unit.unit}{failed}: {unit.end - unit.start:.2f} s"


def _tests_among(root: Path, changed: Sequence[str]) -> tuple[str, ...]:
    """The changed files where no others changed than files of tests: these are to be run."""
    parts = [PurePosixPath(path) for path in changed]
    is_test = [
        path.parts[0] in TEST_FOLDERS
        and path.name.startswith("test_")
        and path.suffix == ".py"
        # A file that was removed or renamed cannot be run, so all tests are.
        and (root / path).is_file()
        for path in parts
    ]
    return tuple(changed) if changed and all(is_test) else ()


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="build and test for cuda:1, or cpu (default: the first GPU, else cpu)",
    )
    parser.add_argument(
        "--bench",
        action="store_true",
        help="measure the project's benchmarks after tests that pass",
    )
    add_python(parser, "builds and tests, and has Torch for the device")
    parser.set_defaults(rest=())
    parser.epilog = "Arguments after `--` are passed to pytest: kbuild dev -- -k backward"


def execute(args: Namespace, ctx: Services) -> int:
    """Build and test until Ctrl-C.

    Raises:
        ToolchainError: the interpreter has no Torch.
    """
    from kbuild.plan.project import BUILD_FILE, open_project

    root = ctx.folder(args.kernel_dir)
    if not (root / BUILD_FILE).is_file():
        open_project(root)  # which says so
    try:
        with start_host(ctx, root, chosen_python(args.python, ctx)) as host:
            DevSession(ctx, root, host, args.device, tuple(args.rest), has_bench=args.bench).run()
    except KeyboardInterrupt as request:
        if request.args:  # another signal than Ctrl-C
            raise
    return 0

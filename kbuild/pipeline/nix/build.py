"""Runs one `nix build` for all wanted derivations.

Progress from its log, a log file for each derivation, and the error of each that failed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from kbuild.build.ninja import ErrorExcerpt
from kbuild.pipeline.nix.flake import (
    BUILD,
    BUILDS,
    COPY,
    LOG_LINE,
    PHASE,
    PROGRESS,
    SUBSTITUTE,
    Derivation,
    NixEvent,
    read_event,
    store_path_name,
    strip_colors,
)
from kbuild.pipeline.nix.pip_settings import SandboxPipSettings, sandbox_pip_settings
from kbuild.pipeline.nix.program import Nix
from kbuild.system.errors import BuildError, KbuildError
from kbuild.system.processes import ProcessResult, Runner
from kbuild.system.progress import Clock, Progress
from kbuild.system.ui import Ui
from kbuild.system.workspace import Workspace

_KBUILD_ERROR = re.compile(r"error: (?P<message>.+)")
_HINT = "  hint: "
_SHOWN = 14
"""Number of lines shown of kbuild's messages in the sandbox."""


@dataclass
class BuilderOutput:
    """Finds the error message of a kbuild in the sandbox; keeps little else."""

    message: str = ""
    hint: str = ""
    excerpt: list[str] = field(default_factory=list)
    others: ErrorExcerpt = field(default_factory=ErrorExcerpt)
    """Errors of builders other than kbuild."""
    _is_open: bool = False

    def take(self, line: str) -> None:
        """Take one more line."""
        line = strip_colors(line)
        self.others.take(line)
        match = _KBUILD_ERROR.match(line)
        if match is not None and not self.message:
            self.message, self._is_open = match["message"], True
        elif self._is_open and line.startswith(_HINT):
            self.hint = line.removeprefix(_HINT)
        elif self._is_open and line.startswith("    ") and len(self.excerpt) < _SHOWN:
            self.excerpt.append(line.strip())
        elif not line.startswith("  "):
            self._is_open = False


@dataclass
class DerivationBuild:
    """The build of a derivation, running or ended."""

    derivation: str
    machine: str = ""
    """Machine that builds; empty for this one."""
    began: float = 0.0
    ended: float | None = None
    log: Path | None = None
    report: BuilderOutput = field(default_factory=BuilderOutput)
    _file: TextIO | None = None

    @property
    def name(self) -> str:
        """Name of the derivation."""
        return store_path_name(self.derivation)

    def open(self, folder: Path) -> None:
        """Keep its lines in a file of a folder."""
        self.log = folder / f"{self.name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.log.open("w", encoding="utf-8", errors="replace", buffering=1)

    def take(self, line: str) -> None:
        """Take one more line of its builder's output."""
        self.ended = None
        self.report.take(line)
        if self._file is not None:
            self._file.write(f"{line}\n")

    def end(self, now: float) -> None:
        """Note that the build seems to have ended; the first call since its last line counts."""
        if self.ended is None:
            self.ended = now

    def close(self) -> None:
        """Close the log: no more lines come."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def failure(self, subject: str, reason: str) -> BuildError:
        """The error of a build that failed."""
        report = self.report
        command = f"`nix log {self.derivation}` shows all of it"
        hint = f"{report.hint}; {command}" if report.hint else command
        message = f"{subject}: {report.message or reason}"
        others = tuple(line for line in report.others.excerpt if line.strip())
        excerpt = tuple(report.excerpt) if report.message else others
        return BuildError(message, excerpt=excerpt, log=self.log, hint=hint)


_DERIVATION = re.compile(r"'(/nix/store/[^'\s]+\.drv)'")
_BUILDER = re.compile(r"builder(?: for '[^']+')? (failed [^\n]*?)[;.]*$", re.MULTILINE)
_REMOTE_FAILURE = re.compile(
    r"build of '[^']+' on '(?P<machine>[^']+)' failed: (?:error:)?\s*(?P<why>.+)"
)
_DEPENDENCY_FAILURE = re.compile(r"dependenc(?:y|ies) (?:of|failed)|^(?:error: *)?build of ")
"""Messages about a failure that another failure caused."""
_PROGRESS_FIELDS = 4
_PROGRESS_LINE = re.compile(r"\S+: (?P<count>\d+(?:/\d+)?) after \d+ s, (?P<what>.*)")
"""A line of progress of a kbuild in the sandbox; see `kbuild.system.progress.LogProgress`."""


@dataclass
class NixBuildMonitor:
    """Reads the log of one run of Nix."""

    labels: Callable[[str], str]
    """The user's name for a derivation: a variant, or its own name."""
    logs: Path
    """Folder that gets a file for every derivation that is built."""
    ui: Ui
    progress: Progress
    clock: Clock = time.monotonic
    builds: dict[str, DerivationBuild] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Derivation -> how its own builder failed."""
    errors: list[str] = field(default_factory=list)
    """Errors that Nix prints at the end."""
    _running: dict[int, DerivationBuild] = field(default_factory=dict)
    _counts: tuple[int, int] = (0, 0)
    _label: str = ""
    _shown: set[str] = field(default_factory=set)
    """Variants whose build was reported: several derivations may belong to one variant."""
    _all: int = 0
    """Number of the activity of all builds together."""

    def listen(self, line: str) -> None:
        """Take one line of Nix's output."""
        event = read_event(line)
        if event is None:
            self._read_plain_line(line)
        elif event.action == "start":
            self._start(event)
        elif event.action == "stop":
            build = self._running.pop(event.id, None)
            # Two activities may be about one build, on this machine and on the builder: the last
            # one ends it.
            if build is not None and build not in self._running.values():
                build.end(self.clock())
                build.close()
        elif event.action == "result":
            self._result(event)
        elif event.level == 0:
            self._failed(event)

    def close(self) -> None:
        """Close all builds: Nix has ended."""
        for build in self.builds.values():
            build.end(self.clock())
            build.close()

    def failures(self) -> Iterator[tuple[str, BuildError]]:
        """Derivation and error, of those that failed by themselves."""
        for derivation, reason in self.reasons.items():
            build = self.builds.get(derivation) or DerivationBuild(derivation)
            yield derivation, build.failure(self.labels(derivation), reason)

    def _start(self, event: NixEvent) -> None:
        if event.type == BUILDS:
            self._all = self._all or event.id  # another machine's are told of below it
        elif event.type == BUILD and event.fields:
            self._begin(event.id, *map(str, event.fields[:2]))
        elif event.type in {SUBSTITUTE, COPY} and event.fields:
            path, *places = map(str, event.fields)
            word = "fetching" if event.type == SUBSTITUTE else "copying"
            self._tell(f"{word} {store_path_name(path)}")
            self.ui.detail(
                f"{word} {store_path_name(path)} {' -> '.join(filter(None, places))}".rstrip()
            )

    def _begin(self, number: int, derivation: str, machine: str = "") -> None:
        if derivation in self.builds:  # another machine tells of it as well
            self._running[number] = self.builds[derivation]
            return
        build = DerivationBuild(derivation, machine, self.clock())
        build.open(self.logs)
        self.builds[derivation] = self._running[number] = build
        label, place = self.labels(derivation), f" on {machine}" if machine else ""
        is_news = label != build.name and label not in self._shown
        self._shown.add(label)
        if is_news:
            self.ui.say(f"{label}: building{place}")
        else:
            self.ui.detail(f"{build.name}: building{place}")
        self._tell(f"{label}: building")

    def _result(self, event: NixEvent) -> None:
        build = self._running.get(event.id)
        if (
            event.type == PROGRESS
            and event.id == self._all
            and len(event.fields) == _PROGRESS_FIELDS
        ):
            self._count(event)
        elif build is not None and event.type == LOG_LINE and event.fields:
            self._line(build, str(event.fields[0]))
        elif build is not None and event.type == PHASE and event.fields:
            self._tell(f"{self.labels(build.derivation)}: {event.fields[0]}")

    def _line(self, build: DerivationBuild, line: str) -> None:
        build.take(line)
        label = self.labels(build.derivation)
        self.ui.detail(f"{label}> {line}")
        step = _PROGRESS_LINE.fullmatch(line)
        if step is not None:
            self._tell(f"{label}: {step['what']} ({step['count']})")

    def _count(self, event: NixEvent) -> None:
        """Read the progress: numbers of done, expected, running and failed builds."""
        done, total, _, failed = (int(count) for count in event.fields)
        over, before = done + failed, self._counts[0]
        self._counts = (over, max(total, over))
        active = [build for build in self._running.values() if build.ended is None]
        if over > before and len(active) == 1:
            active[0].end(self.clock())  # Nix 2.8 tells of the end of each only at the end of all
        self._tell("")

    def _tell(self, label: str) -> None:
        if label:
            self._label = label
        self.progress.update(*self._counts, self._label)

    def _failed(self, event: NixEvent) -> None:
        text = event.text.removeprefix("error:").strip()
        self.errors.append(event.raw.strip() or text)
        derivation, elsewhere = _DERIVATION.search(text), _REMOTE_FAILURE.match(text)
        if derivation is not None and elsewhere is not None:
            self.reasons.setdefault(derivation[1], f"on {elsewhere['machine']}: {elsewhere['why']}")
        elif derivation is not None and not _DEPENDENCY_FAILURE.search(text):
            builder = _BUILDER.search(text)
            self.reasons.setdefault(derivation[1], f"its builder {builder[1]}" if builder else text)

    def _read_plain_line(self, line: str) -> None:
        """Read the output of programs that Nix starts, and errors of its command line."""
        if line.startswith("error:"):
            self.errors.append(line.removeprefix("error:").strip())
        elif line.strip():
            self.ui.detail(line)


NIX_WORKSPACE = "nix"


@dataclass(frozen=True)
class NixBuildResult:
    """The outcome for the derivations that were wanted."""

    failed: Mapping[str, KbuildError] = field(default_factory=dict)
    """Name -> error of a derivation that was not built."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Name -> how long its own builder ran, of those that were built rather than fetched."""


@dataclass(frozen=True)
class NixBuildCommand:
    """Derivations by name, and how they are to be made."""

    nix: Nix
    arguments: tuple[str, ...]
    wanted: Mapping[str, Derivation]
    runner: Runner
    ui: Ui

    def perform(self, project: Path) -> NixBuildResult:
        """Make them; as many as can be made, when some fail.

        Raises:
            BuildError: Nix failed for a reason that is no derivation's.
        """
        space = Workspace(project, NIX_WORKSPACE)
        with (
            space.locked(say=self.ui.say) as lock,
            sandbox_pip_settings(self.nix, self.runner) as lent,
        ):
            shutil.rmtree(space.logs, ignore_errors=True)
            for place in lent.unreadable:
                self.ui.warn(
                    f"pip is configured to use {place}, which Nix's builders, the users of "
                    f"`{self.nix.sandbox.group}`, cannot read (chmod -R o+rX {place})"
                )
            return self._run(space, lock, lent)

    def _run(
        self, space: Workspace, lock: Sequence[int], lent: SandboxPipSettings
    ) -> NixBuildResult:
        title = next(iter(self.wanted)) if len(self.wanted) == 1 else f"{len(self.wanted)} variants"
        with self.ui.progress(title, 0) as progress:
            watch = NixBuildMonitor(self._label, space.logs, self.ui, progress)
            log = space.logs / "build.json"
            try:
                done = self.runner.run(
                    self._command(lent),
                    cwd=space.project,
                    env=lent.environment,
                    log=log,
                    listen=watch.listen,
                    inherit=lock,
                )
            finally:
                watch.close()
        return self._judged(done, watch, log)

    def _command(self, lent: SandboxPipSettings) -> tuple[str, ...]:
        installables = [self.nix.outputs_of(wanted.file) for wanted in self.wanted.values()]
        # The failure of one variant must not end the others.
        how = ("--no-link", "--keep-going", "--log-format", "internal-json")
        options = (*self.arguments, *lent.options)
        return self.nix.command("build", *how, *options, *installables)

    def _label(self, derivation: str) -> str:
        """The variant that a derivation is for: its own, or one that its name tells."""
        name = store_path_name(derivation)
        for own, candidate in self.wanted.items():
            if derivation in {candidate.file, candidate.compiled} or own in name:
                return own
        return name

    def _judged(self, done: ProcessResult, watch: NixBuildMonitor, log: Path) -> NixBuildResult:
        # Nix's exit status is that of all derivations together; the outputs tell which were made.
        missing = [
            name for name, derivation in self.wanted.items() if not Path(derivation.output).exists()
        ]
        if not done.ok and not watch.reasons:
            first, *more = (
                watch.errors[-1] if watch.errors else "without an error message"
            ).splitlines()
            command = done.command if not watch.errors else ""
            raise BuildError(f"nix build failed: {first}", excerpt=more, command=command, log=log)
        errors = dict(watch.failures())
        failed = {name: self._why(name, errors, log) for name in missing}
        return NixBuildResult(failed, self._seconds(watch))

    def _why(self, name: str, errors: Mapping[str, BuildError], log: Path) -> BuildError:
        """The error of a variant: its own, else that of a derivation that it may need."""
        others = [error for file, error in errors.items() if self._label(file) not in self.wanted]
        for file, error in errors.items():
            if self._label(file) == name:
                return error
        for error in others:
            message = f"{name}: {error.message}"
            return BuildError(message, excerpt=error.excerpt, log=error.log, hint=error.hint)
        return BuildError(
            f"{name}: Nix built it, but this store has no `{self.wanted[name].output}`",
            log=log,
            hint="kbuild copies from this machine's own store",
        )

    def _seconds(self, watch: NixBuildMonitor) -> dict[str, float]:
        taken: dict[str, float] = {}
        for build in watch.builds.values():
            name = self._label(build.derivation)
            if name in self.wanted and build.ended is not None:
                taken[name] = taken.get(name, 0.0) + build.ended - build.began
        return taken

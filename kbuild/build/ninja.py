"""Runs ninja in a build tree: progress, the first error of a failing unit.

And deletes objects whose recorded inputs are stale.

ninja compares times; the launchers record what each object was really compiled from.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.build.hints import compile_hint, link_hint, python_module_error
from kbuild.build.unit import EXIT_INPUTS_CHANGED, EXIT_OUT_OF_TIME
from kbuild.build.unit.inputs import (
    INPUTS_SUFFIX,
    parse_inputs_row,
    read_recorded_inputs,
    recorded_rows,
)
from kbuild.system.errors import BuildError, IncompleteError
from kbuild.system.file_state import FileState, identify, stat_state
from kbuild.system.os_errors import system_refusal_in
from kbuild.system.processes import ProcessResult, Runner

STATUS = "[kbuild %f/%t] "
_STATUS_LINE = re.compile(r"\[kbuild (\d{1,9})/(\d{1,9})\] (.*)")
# ninja prints the exit status from release 1.13 on.
_FAILED = re.compile(r"FAILED:\s+(?:\[code=(-?\d{1,9})\]\s+)?(\S+)")
_ERROR = re.compile(
    r"(\berror\b\s*:|\bfatal error\b|undefined reference|ld: |ptxas fatal|Error \d+|"
    r"cannot find|Killed|internal compiler error|CMake Error)"
)
_OBJECT_OF = re.compile(r"(?:CMakeFiles/)?(?:.*?\.dir/)?(.+?)\.o(?:bj)?$")
_OBJECT = re.compile(r"(\S.*): #deps \d+, deps mtime \d+ \(\w+\)$")
_CHANGED_PREFIX = "kbuild: error: "
EXCERPT_LINES = 12
_SHORT_COMMAND = 68
"""Characters of a command that is shown as it is; with its margin it fits into 80 columns."""

ProgressCallback = Callable[[int, int, str], None]
"""(units done, units in all, what was just done)."""


@dataclass
class ErrorExcerpt:
    """Finds the first error in lines that come one by one; the others are not kept."""

    _lines: deque[str] = field(default_factory=deque)
    _is_found: bool = False

    def take(self, line: str) -> None:
        """Take one more line."""
        if not self._is_found and _ERROR.search(line):
            self._is_found = True
            self._lines.clear()
        if self._is_found and len(self._lines) == EXCERPT_LINES:
            return
        self._lines.append(line)
        if len(self._lines) > EXCERPT_LINES:
            self._lines.popleft()

    @property
    def excerpt(self) -> tuple[str, ...]:
        """The lines from the first error on, or the last lines when none looks like one."""
        return tuple(self._lines)


@dataclass
class NinjaOutput:
    """Ninja's output, read line by line."""

    tell: ProgressCallback
    root: Path = Path("/")
    """The project: CMake mirrors absolute paths in its build tree, users think in relative ones."""
    done: int = 0
    total: int = 0
    command: str = ""
    """Command of the first failing edge."""
    errors: ErrorExcerpt = field(default_factory=ErrorExcerpt)
    """Output of the first failing edge."""
    unit: str = ""
    code: int = 0
    """Exit status of the first failing edge."""
    _recording: bool = False

    def listen(self, line: str) -> None:
        """Take one line."""
        status = _STATUS_LINE.match(line)
        if status is not None:
            self._recording = False
            self.done, self.total = int(status[1]), int(status[2])
            self.tell(self.done, self.total, unit_label(status[3], self.root))
            return
        failure = _FAILED.match(line)
        if failure is not None and not self.unit:
            self.code, self.unit, self._recording = int(failure[1] or 1), failure[2], True
        elif failure is not None or line.startswith("ninja: "):
            self._recording = False
        # The line after `FAILED:` is the command.
        elif self._recording and not self.command:
            self.command = line
        elif self._recording:
            self.errors.take(line)


def unit_label(status: str, root: Path) -> str:
    """`Building CXX object CMakeFiles/x.dir/<root>/src/relu.cpp.o` becomes `src/relu.cpp`."""
    match = _OBJECT_OF.match(status.rsplit(" ", 1)[-1])
    if match is None or not status.startswith("Building"):
        return status
    return match[1].removeprefix(f"{root}/".lstrip("/"))


def first_error_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines from the first error on, or the last lines when none looks like one."""
    errors = ErrorExcerpt()
    for line in lines:
        errors.take(line)
    return errors.excerpt


def run_ninja(
    runner: Runner,
    ninja: Path,
    tree: Path,
    *,
    root: Path,
    jobs: int | None,
    env: Mapping[str, str],
    log: Path,
    tell: ProgressCallback,
    lock: Sequence[int] = (),
) -> int:
    """Build everything; returns the number of units that ran.

    `jobs` is None for a ninja that is a jobserver's client, through `env`. `lock` are descriptors
    that every compiler inherits.

    Raises:
        IncompleteError: units were not started because the time budget is over.
        BuildError: with the first error lines of the first failing unit.
    """
    output = NinjaOutput(tell, root)
    done = runner.run(
        (str(ninja),) if jobs is None else (str(ninja), "-j", str(jobs)),
        cwd=tree,
        env={**env, "NINJA_STATUS": STATUS},
        log=log,
        listen=output.listen,
        inherit=lock,
    )
    if done.ok:
        return output.done
    # The launcher's own exit statuses: no compiler failed.
    if output.code == EXIT_OUT_OF_TIME:
        raise IncompleteError(f"{output.total - output.done} steps were not started in time")
    if output.code == EXIT_INPUTS_CHANGED:
        notice = next(
            (line for line in output.errors.excerpt if line.startswith(_CHANGED_PREFIX)), ""
        )
        message = (
            notice.removeprefix(_CHANGED_PREFIX) or f"{output.unit}: its inputs changed meanwhile"
        )
        raise BuildError(message, hint="stop editing the file, then build again", log=log)
    if not output.command:
        raise process_failure("ninja failed", done, tree, log)
    raise _unit_failure(output, done, tree, root, log)


def _unit_failure(
    output: NinjaOutput, done: ProcessResult, tree: Path, root: Path, log: Path
) -> BuildError:
    """The failure of a compiler or a linker, its output with paths relative to the project."""
    # CMake's objects mirror the path of their sources: `x.dir/home/me/project/a.cpp.o`.
    absolute = re.compile(rf"(?<![\w./-]){re.escape(str(root))}/")
    excerpt = [absolute.sub("", line) for line in output.errors.excerpt]
    command, lines = f"cd {tree} && {output.command}", done.output.splitlines()
    if not output.unit.endswith((".o", ".obj")):
        what, hint = f"{output.unit} could not be made", link_hint(output.errors.excerpt, root)
        error = process_failure(what, done, tree, log, excerpt=excerpt, command=command)
        error.hint = error.hint or hint
        return error
    source = unit_label(f"Building {output.unit}", root)
    reason, hint = python_module_error(root / source, lines)
    what = f"{source} did not compile{': ' if reason else ''}{reason}"
    shown = [] if reason else excerpt
    error = process_failure(what, done, tree, log, excerpt=shown, command=command)
    if reason:
        error.excerpt = ()
    error.hint = error.hint or hint or compile_hint(lines)
    return error


def launcher_commands(
    runner: Runner, ninja: Path, tree: Path, launcher: Path, lock: Sequence[int] = ()
) -> list[list[str]]:
    """The commands of a tree that start compilers through the launcher, in ninja's order."""
    done = runner.run((str(ninja), "-t", "commands"), cwd=tree, inherit=lock)
    marked = (line for line in done.output.splitlines() if str(launcher) in line)
    commands = (shlex.split(line) for line in marked)
    return [command for command in commands if str(launcher) in command]


def process_failure(
    what: str,
    done: ProcessResult,
    tree: Path,
    log: Path,
    *,
    excerpt: Sequence[str] = (),
    command: str = "",
) -> BuildError:
    """The failure of a process that wrote to `tree`, with the cause where that is the system's."""
    lines = done.output.splitlines()
    cause, hint = system_refusal_in(lines, tree) or ("", "")
    command = command or done.command
    return BuildError(
        f"{what}: {cause}" if cause else what,
        excerpt=excerpt or first_error_lines(lines),
        command=command,
        command_file=_command_file(command, log),
        log=log,
        hint=hint,
    )


def _command_file(command: str, log: Path) -> Path | None:
    """A script beside the log that runs the command; None for a short one, or without room."""
    if len(command) <= _SHORT_COMMAND:
        return None
    script = log.with_name(f"{log.stem}-failed.sh")
    try:
        script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        script.chmod(0o755)
    except OSError:
        return None
    return script


def library_objects(
    runner: Runner, ninja: Path, tree: Path, lock: Sequence[int] = ()
) -> tuple[str, ...]:
    """The objects that the tree's libraries are made of, relative to it."""
    objects: list[str] = []

    def take(line: str) -> None:  # one of hundreds of thousands: all headers of all objects
        match = _OBJECT.match(line)
        if match is not None:
            objects.append(match[1])

    runner.run((str(ninja), "-t", "deps"), cwd=tree, inherit=lock, listen=take)
    return tuple(objects)


_OBJECTS, _DRAFTS = "CMakeFiles/*.dir/**/*.o", "CMakeFiles/*.dir/**/*.draft"


@dataclass(frozen=True)
class CurrentFiles:
    """Current states of files, each read once."""

    _looks: dict[str, FileState] = field(default_factory=dict)
    _identities: dict[str, FileState] = field(default_factory=dict)

    def holds(self, path: str, then: FileState) -> bool:
        """True when the file still is what it was."""
        if path not in self._looks:
            self._looks[path] = stat_state(path)
        now = self._looks[path]
        if now is None or then is None:
            return now is then
        return now[:4] == then[:4] or (now[0] == then[0] and self.content(path) == then[4])

    def content(self, path: str) -> str:
        """The hash of what the file holds."""
        if path not in self._identities:
            self._identities[path] = identify(path)
        return _content_hash(self._identities[path])


def delete_stale_objects(tree: Path) -> None:
    """Delete the objects of a build tree whose inputs are unknown, or have changed.

    Drafts of killed units are deleted as well: nobody else builds in this tree.
    """
    for path in tree.glob(_DRAFTS):
        path.unlink(missing_ok=True)
    present = CurrentFiles()
    for path in tree.glob(_OBJECTS):
        made_from = _recorded_inputs(path)
        if not made_from or not all(present.holds(*entry) for entry in made_from.items()):
            delete_object(path)


def delete_object(path: Path) -> None:
    """Delete an object, so that it is compiled again."""
    path.unlink(missing_ok=True)
    # The record goes too: it describes an object that is gone.
    path.with_name(f"{path.name}{INPUTS_SUFFIX}").unlink(missing_ok=True)


@dataclass(frozen=True)
class ObjectInputs:
    """The inputs of all objects of one library, each as its unit read it."""

    files: Mapping[str, Mapping[FileState, Sequence[Path]]]
    """Path -> what the file was -> the objects that were made from this."""

    def disagreeing(self, generated: Path) -> dict[Path, str]:
        """Objects to compile again, and for each a file of which it read another state.

        Args:
            generated: a folder whose files nobody but kbuild changes: they are what they are now.
        """
        present = CurrentFiles()
        paths_by_unit: dict[Path, str] = {}
        for path, states in self.files.items():
            # One state in all objects suffices: if it has changed since, the next build sees that.
            if len(set(map(_content_hash, states))) > 1 or path.startswith(f"{generated}/"):
                now = present.content(path)
                for then, units in states.items():
                    if _content_hash(then) != now:
                        paths_by_unit |= dict.fromkeys(units, path)
        return paths_by_unit

    def below(self, root: Path, without: Path) -> Iterator[tuple[str, FileState]]:
        """The files below a folder, relative to it, but for those in a folder of it."""
        start, hidden = f"{root}/", f"{without}/"
        for path, states in self.files.items():
            if path.startswith(start) and not path.startswith(hidden):
                for then in states:
                    yield path.removeprefix(start), then


def read_object_inputs(tree: Path, objects: Iterable[str]) -> ObjectInputs:
    """The inputs of these objects of a build tree; without those that have no record."""
    read: dict[str, tuple[str, FileState]] = {}
    units_by_row: dict[str, list[Path]] = {}
    for unit in (tree / name for name in objects):
        try:
            rows = recorded_rows(str(unit))
            read |= {row: parse_inputs_row(row) for row in rows if row not in read}
        except (OSError, ValueError):
            continue
        for row in rows:
            units_by_row.setdefault(row, []).append(unit)
    files: dict[str, dict[FileState, list[Path]]] = {}
    for row, units in units_by_row.items():
        path, then = read[row]
        files.setdefault(path, {}).setdefault(then, []).extend(units)
    return ObjectInputs(files)


def _recorded_inputs(path: Path) -> dict[str, FileState]:
    try:
        return read_recorded_inputs(str(path))
    except (OSError, ValueError):
        return {}


def _content_hash(identity: FileState) -> str:
    return identity[4] if identity is not None else ""

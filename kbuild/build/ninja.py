"""Running ninja: progress from its status lines, the first error of a failing unit, its deps."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.build.unit import CHANGED, OVER
from kbuild.errors import BuildError, IncompleteError
from kbuild.run import Done, Runner
from kbuild.storage import death

STATUS = "[kbuild %f/%t] "
_STATUS_LINE = re.compile(r"\[kbuild (\d{1,9})/(\d{1,9})\] (.*)")
_FAILED = re.compile(r"FAILED:\s+(?:\[code=(-?\d{1,9})\]\s+)?(\S+)")
_ERROR = re.compile(
    r"(\berror\b\s*:|\bfatal error\b|undefined reference|ld: |ptxas fatal|Error \d+|"
    r"cannot find|Killed|internal compiler error|CMake Error)"
)
_OBJECT_OF = re.compile(r"(?:CMakeFiles/)?(?:.*?\.dir/)?(.+?)\.o(?:bj)?$")
_OBJECT = re.compile(r"(\S.*): #deps \d+, deps mtime \d+ \(\w+\)$")
_CHANGED = "kbuild: error: "
EXCERPT_LINES = 12

Tell = Callable[[int, int, str], None]
"""(units done, units in all, what was just done)."""


@dataclass
class Errors:
    """Finds the first error in lines that come one by one; the others are not kept."""

    limit: int = EXCERPT_LINES
    _lines: deque[str] = field(default_factory=deque)
    _is_found: bool = False

    def take(self, line: str) -> None:
        """One more line."""
        if not self._is_found and _ERROR.search(line):
            self._is_found = True
            self._lines.clear()
        if self._is_found and len(self._lines) == self.limit:
            return
        self._lines.append(line)
        if len(self._lines) > self.limit:
            self._lines.popleft()

    @property
    def excerpt(self) -> tuple[str, ...]:
        """The lines from the first error on, or the last lines when none looks like one."""
        return tuple(self._lines)


@dataclass
class NinjaOutput:
    """Ninja's output, read line by line."""

    tell: Tell
    root: Path = Path("/")
    """The project: CMake mirrors absolute paths in its build tree, users think in relative ones."""
    done: int = 0
    total: int = 0
    command: str = ""
    """Of the first failing edge."""
    errors: Errors = field(default_factory=Errors)
    """What the first failing edge printed."""
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
            self.tell(self.done, self.total, label(status[3], self.root))
            return
        failure = _FAILED.match(line)
        if failure is not None and not self.unit:
            self.code, self.unit, self._recording = int(failure[1] or 1), failure[2], True
        elif failure is not None or line.startswith("ninja: "):
            self._recording = False
        elif self._recording and not self.command:
            self.command = line
        elif self._recording:
            self.errors.take(line)


def label(status: str, root: Path) -> str:
    """`Building CXX object CMakeFiles/x.dir/<root>/src/relu.cpp.o` becomes `src/relu.cpp`."""
    last = status.rsplit(" ", 1)[-1]
    match = _OBJECT_OF.match(last)
    if match is None or not status.startswith("Building"):
        return status
    return match[1].removeprefix(f"{root}/".lstrip("/"))


def first_errors(lines: Iterable[str], limit: int = EXCERPT_LINES) -> tuple[str, ...]:
    """The lines from the first error on, or the last lines when none looks like one."""
    errors = Errors(limit)
    for line in lines:
        errors.take(line)
    return errors.excerpt


def build(
    runner: Runner,
    ninja: Path,
    tree: Path,
    *,
    root: Path,
    jobs: int | None,
    env: Mapping[str, str],
    log: Path,
    tell: Tell,
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
    if output.code == OVER:
        raise IncompleteError(f"{output.total - output.done} steps were not started in time")
    if output.code == CHANGED:
        words = next((line for line in output.errors.excerpt if line.startswith(_CHANGED)), "")
        message = words.removeprefix(_CHANGED) or f"{output.unit}: its inputs changed meanwhile"
        raise BuildError(message, hint="let the file rest, then build again", log=log)
    if not output.command:
        raise failed("ninja failed", done, tree, log)
    raise failed(
        f"{label(f'Building {output.unit}', root)} did not compile"
        if output.unit.endswith((".o", ".obj"))
        else f"{output.unit} could not be made",
        done,
        tree,
        log,
        excerpt=output.errors.excerpt,
        command=f"cd {tree} && {output.command}",
    )


def failed(
    what: str,
    done: Done,
    tree: Path,
    log: Path,
    *,
    excerpt: Sequence[str] = (),
    command: str = "",
) -> BuildError:
    """The failure of a process that wrote to `tree`, with the cause where that is the system's.

    Args:
        what: the sentence for it.
        done: the process.
        tree: where it wrote.
        log: where its output is.
        excerpt: of the output (default: from its first error on).
        command: what failed (default: the process).
    """
    lines = done.output.splitlines()
    cause, hint = death(lines, tree) or ("", "")
    return BuildError(
        f"{what}: {cause}" if cause else what,
        excerpt=excerpt or first_errors(lines),
        command=command or done.command,
        log=log,
        hint=hint,
    )


def objects(runner: Runner, ninja: Path, tree: Path, lock: Sequence[int] = ()) -> tuple[str, ...]:
    """The objects that the tree's libraries are made of, relative to it."""
    done = runner.run((str(ninja), "-t", "deps"), cwd=tree, inherit=lock)
    found = map(_OBJECT.match, done.output.splitlines())
    return tuple(match[1] for match in found if match is not None)

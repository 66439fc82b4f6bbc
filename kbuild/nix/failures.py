"""Nix's failures in kbuild's words: errors of evaluation, and builders that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kbuild.errors import BuildError, ConfigError, KbuildError, Problem
from kbuild.nix.events import Event, plain, read_event

_FETCHING = re.compile(
    r"unable to download|while fetching the input|cannot fetch|[Ff]ailed to fetch|"
    r"unable to access|[Cc]ould(?: not|n't) resolve|program 'git' failed|cannot find flake '"
)
_UNTRACKED = re.compile(
    r"'(?P<path>[^'\s]+)' in the repository \S+ is not tracked|"
    r"(?:getting status of|path) '/nix/store/[a-z0-9]{32}-source/(?P<stored>[^']*)'"
)
_PLACE = re.compile(r"at (?P<file>/[^\s:]+):(?P<line>\d{1,9})(?::\d+)?")
_STORED = re.compile(r"^/nix/store/[a-z0-9]{32}-source/")
_TOLD = re.compile(r"(?P<file>[^\s:/][^\s:]*):(?P<line>\d{1,9}): (?P<words>.+)")
"""What kbuild's own functions throw about a file of the project."""
_ABSENT = "does not provide attribute"
_TAIL = re.compile(r":\d+:\d+$")
_SHOWN = 12


class EvaluationError(BuildError):
    """The flake cannot be evaluated, for a reason that is not in the project's own files."""

    def __init__(self, message: str, excerpt: tuple[str, ...], text: str, hint: str = "") -> None:
        super().__init__(message, excerpt=excerpt, hint=hint)
        self.is_absent = _ABSENT in text
        self.is_out_of_reach = _FETCHING.search(text) is not None


def evaluation_error(output: str, root: Path) -> KbuildError:
    """What an evaluation that failed is about.

    Args:
        output: what Nix wrote, in its `internal-json` format.
        root: the project.

    Returns:
        A `ConfigError` with file and line when the fault is in the project, else an
        `EvaluationError`.
    """
    errors = [event for event in _events(output) if event.level == 0 and event.action == "msg"]
    event = next((event for event in errors if event.raw), None) or _unstructured(output)
    untracked = _untracked(event, root)
    if untracked is not None:
        return untracked
    message = (event.raw or event.text).strip()
    told = _TOLD.match(message)
    if told is not None and _is_there(root / told["file"]):
        return ConfigError([Problem(told["file"], int(told["line"]), "", told["words"])])
    for file, line in _places(event):
        path = _in_project(file, root)
        if path is not None:
            first, _, rest = message.partition("\n")
            return ConfigError([Problem(path, line, "", first, hint=rest.strip())])
    return _elsewhere(message, event, output)


def _elsewhere(message: str, event: Event, output: str) -> EvaluationError:
    text = plain(output)
    place = next(iter(_places(event)), None)
    where = (f"at {place[0]}:{place[1]}",) if place else ()
    first, *more = message.splitlines() or ["Nix says nothing"]
    failure = EvaluationError(
        f"the project's flake does not evaluate: {first}", (*more[:_SHOWN], *where), text
    )
    if failure.is_out_of_reach:
        failure.message = f"an input of the project's flake cannot be fetched: {first}"
        failure.hint = "--override-input INPUT FLAKE takes it from elsewhere"
    return failure


def _untracked(event: Event, root: Path) -> ConfigError | None:
    """Nix reads a repository as git knows it: what nobody added is not there."""
    match = _UNTRACKED.search(event.text)
    path = (match["path"] or match["stored"]) if match else ""
    found = next((one for one in _below(path, root) if _is_there(root / one)), None)
    if not path or found is None:
        return None
    words = "git does not know this file, so Nix does not see it"
    return ConfigError([Problem(found, 0, "", words, hint=f"git add --intent-to-add {found}")])


def _events(output: str) -> Iterator[Event]:
    for line in output.splitlines():
        event = read_event(line)
        if event is not None:
            yield event


def _unstructured(output: str) -> Event:
    """Errors of the command line come as plain text."""
    lines = [line for line in plain(output).splitlines() if not line.startswith("@nix ")]
    text = "\n".join(line.removeprefix("error: ") for line in lines[-_SHOWN:])
    return Event("msg", text=text, raw=text)


def _places(event: Event) -> Iterator[tuple[str, int]]:
    """Where it happened, then the places from which that was asked for, innermost first."""
    if event.file and event.line:
        yield _TAIL.sub("", event.file), event.line
    found = [(match["file"], int(match["line"])) for match in _PLACE.finditer(event.text)]
    yield from reversed(found)


def _in_project(file: str, root: Path) -> str | None:
    """The path as the user would type it; None for a file of somebody else."""
    stored = _STORED.sub("", file)
    if stored != file:
        return next((path for path in _below(stored, root) if _is_same(root / path, file)), None)
    try:
        return Path(file).relative_to(root.resolve()).as_posix()
    except ValueError:
        return None


def _is_same(path: Path, stored: str) -> bool:
    """Whether a stored file is the project's: every flake has a `flake.nix`.

    New releases of Nix name files that they did not have to store.
    """
    if not _is_there(Path(stored)):
        return _is_there(path)
    try:
        return path.read_bytes() == Path(stored).read_bytes()
    except OSError:
        return False


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _below(stored: str, root: Path) -> Iterator[str]:
    """A stored path from the project's folder, which may be a part of its repository."""
    yield stored
    parts = stored.split("/")
    for at in range(1, len(parts)):
        if parts[at - 1] == root.name:
            yield "/".join(parts[at:])

"""The derivations of a project's flake by variant, or why evaluation failed.

Reads Nix's `internal-json` log (2.8 to 2.34).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.pipeline.nix.program import Nix
from kbuild.system.errors import (
    BuildError,
    ConfigError,
    DamagedFileError,
    KbuildError,
    Problem,
)
from kbuild.system.processes import ProcessResult, Runner
from kbuild.system.untrusted import parse_json, reading

EVENT_PREFIX = "@nix "
COPY, BUILDS, BUILD, SUBSTITUTE = 100, 104, 105, 108
"""Activities: a path is copied, all builds together, one build, a path is fetched."""
LOG_LINE, PHASE, PROGRESS = 101, 104, 105
"""Results: a line that a builder said, its phase, how far an activity has come."""
_ANSI_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class NixEvent:
    """One line; parts that its action does not have are empty."""

    action: str
    """`start`, `stop`, `result` or `msg`."""
    id: int = 0
    type: int = 0
    fields: tuple[Any, ...] = ()
    level: int = 0
    """Level of a message: 0 is an error, 1 a warning."""
    text: str = ""
    """Text of a message, without colours."""
    raw: str = ""
    """Innermost sentence of an error."""
    file: str = ""
    line: int = 0


def read_event(line: str) -> NixEvent | None:
    """The event of a line; None when it is none of Nix's."""
    if not line.startswith(EVENT_PREFIX):
        return None
    try:
        with reading("nix", "an event of Nix"):
            data = parse_json(line[len(EVENT_PREFIX) :], "nix", "an event of Nix")
            return NixEvent(
                action=str(data["action"]),
                id=int(data.get("id") or 0),
                type=int(data.get("type") or 0),
                fields=tuple(data.get("fields") or ()),
                level=int(data.get("level") or 0),
                text=strip_colors(str(data.get("msg") or "")),
                raw=strip_colors(str(data.get("raw_msg") or "")),
                file=str(data.get("file") or ""),
                line=int(data.get("line") or 0),
            )
    except DamagedFileError:
        return None


def strip_colors(text: str) -> str:
    """Text without colours."""
    return _ANSI_COLOR.sub("", text)


def store_path_name(path: str) -> str:
    """`relu-torch213` of `/nix/store/<hash>-relu-torch213.drv`."""
    return path.rsplit("/", 1)[-1].partition("-")[2].removesuffix(".drv") or path


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
_PROJECT_MESSAGE = re.compile(r"(?P<file>[^\s:/][^\s:]*):(?P<line>\d{1,9}): (?P<words>.+)")
"""An error that kbuild's own functions throw about a file of the project."""
_ABSENT = "does not provide attribute"
_TAIL = re.compile(r":\d+:\d+$")
_SHOWN = 12


class FlakeEvaluationError(BuildError):
    """The flake cannot be evaluated, for a reason that is not in the project's own files."""

    def __init__(self, message: str, excerpt: tuple[str, ...], text: str, hint: str = "") -> None:
        super().__init__(message, excerpt=excerpt, hint=hint)
        self.is_absent = _ABSENT in text


def evaluation_error(output: str, root: Path) -> KbuildError:
    """The error for an evaluation that failed.

    Returns:
        A `ConfigError` with file and line when the fault is in the project, else a
        `FlakeEvaluationError`.
    """
    errors = [event for event in _events(output) if event.level == 0 and event.action == "msg"]
    event = next((event for event in errors if event.raw), None) or _unstructured(output)
    untracked = _untracked(event, root)
    if untracked is not None:
        return untracked
    message = (event.raw or event.text).strip()
    match = _PROJECT_MESSAGE.match(message)
    if match is not None and _exists(root / match["file"]):
        return ConfigError([Problem(match["file"], int(match["line"]), "", match["words"])])
    for file, line in _places(event):
        path = _in_project(file, root)
        if path is not None:
            first, _, rest = message.partition("\n")
            return ConfigError([Problem(path, line, "", first, hint=rest.strip())])
    return _error_outside_project(message, event, output)


def _error_outside_project(message: str, event: NixEvent, output: str) -> FlakeEvaluationError:
    text = strip_colors(output)
    place = next(iter(_places(event)), None)
    where = (f"at {place[0]}:{place[1]}",) if place else ()
    first, *more = message.splitlines() or ["Nix printed no error"]
    failure = FlakeEvaluationError(
        f"the project's flake does not evaluate: {first}", (*more[:_SHOWN], *where), text
    )
    if _FETCHING.search(text):
        failure.message = f"an input of the project's flake cannot be fetched: {first}"
        failure.hint = "`-- --override-input INPUT FLAKE` takes it from elsewhere"
    return failure


def _untracked(event: NixEvent, root: Path) -> ConfigError | None:
    """Error for a file that git does not track: Nix does not see it."""
    match = _UNTRACKED.search(event.text)
    path = (match["path"] or match["stored"]) if match else ""
    file = next((candidate for candidate in _below(path, root) if _exists(root / candidate)), None)
    if not path or file is None:
        return None
    message = "git does not track this file, so Nix does not see it"
    return ConfigError([Problem(file, 0, "", message, hint=f"git add --intent-to-add {file}")])


def _events(output: str) -> Iterator[NixEvent]:
    for line in output.splitlines():
        event = read_event(line)
        if event is not None:
            yield event


def _unstructured(output: str) -> NixEvent:
    """An event from plain text: errors of Nix's command line have no structure."""
    lines = [line for line in strip_colors(output).splitlines() if not line.startswith("@nix ")]
    text = "\n".join(line.removeprefix("error: ") for line in lines[-_SHOWN:])
    return NixEvent("msg", text=text, raw=text)


def _places(event: NixEvent) -> Iterator[tuple[str, int]]:
    """The place of the error, then the places from which that was evaluated, innermost first."""
    if event.file and event.line:
        yield _TAIL.sub("", event.file), event.line
    places = [(match["file"], int(match["line"])) for match in _PLACE.finditer(event.text)]
    yield from reversed(places)


def _in_project(file: str, root: Path) -> str | None:
    """The path as the user would type it; None for a file outside of the project."""
    stored = _STORED.sub("", file)
    if stored != file:
        return next((path for path in _below(stored, root) if _is_same(root / path, file)), None)
    try:
        return Path(file).relative_to(root.resolve()).as_posix()
    except ValueError:
        return None


def _is_same(path: Path, stored: str) -> bool:
    """True when a stored file is the project's: every flake has a `flake.nix`.

    New releases of Nix name files that they did not have to store.
    """
    if not _exists(Path(stored)):
        return _exists(path)
    try:
        return path.read_bytes() == Path(stored).read_bytes()
    except OSError:
        return False


def _exists(path: Path) -> bool:
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


FLAKE_FILE = "flake.nix"
_KIND = "an answer of Nix"
_USES = re.compile(r"\bkbuild\b")
_QUESTION = """\
packages:
let
  names = builtins.fromJSON %s;
  offered = packages.redistributable or { };
  refused = offered.unsupported or { };
  told = derivation: { derivation = derivation.drvPath; output = derivation.outPath; };
  # What the commit changes is made from what was compiled.
  both = name: told offered.${name} // {
    compiled = (offered.${name}.compiled or offered.${name}).drvPath;
  };
  those = set: builtins.filter (name: set ? ${name}) names;
  of = set: valueOf: builtins.listToAttrs
    (map (name: { inherit name; value = valueOf name; }) (those set));
in
{
  offered = of offered both;
  refused = of refused (name: refused.${name});
}
"""


@dataclass(frozen=True)
class Derivation:
    """A derivation: something that Nix can build."""

    file: str
    output: str
    """Path of the output in the store, built or not."""
    compiled: str = ""
    """The `.drv` file of what it is made from, where making it is only the last touch. Messages of
    its builder are the variant's."""


@dataclass(frozen=True)
class FlakeVariants:
    """The derivations that a flake offers for some variants, and its refusals."""

    variants: Mapping[str, Derivation] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Variant -> why it cannot be made."""


def uses_kbuild(root: Path) -> bool:
    """True when the folder has a flake that names kbuild."""
    try:
        return _USES.search((root / FLAKE_FILE).read_text("utf-8", "replace")) is not None
    except OSError:
        return False


@dataclass(frozen=True)
class Flake:
    """A project's flake, as one Nix reads it."""

    root: Path
    nix: Nix
    runner: Runner
    arguments: tuple[str, ...] = ()

    def offer(self, system: str, variants: Sequence[str]) -> FlakeVariants:
        """The flake's offer of some variants on a system.

        Derivations are written to the store; nothing is built.

        Raises:
            ConfigError: an error in a file of the project.
            FlakeEvaluationError: an error elsewhere, or an input that cannot be fetched.
        """
        text = json.dumps(list(variants))
        # In a string of Nix, `${` begins an expression.
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
        wanted = _QUESTION % f'"{escaped}"'
        attribute = f".#packages.{system}"
        command = self.nix.command("eval", "--json", attribute, "--apply", wanted)
        log = ("--log-format", "internal-json")
        arguments = (*command, *log, *self.arguments)
        done = self.runner.run(arguments, cwd=self.root)
        answer = _parse_answer(done) if done.ok else None
        if answer is None:
            error = evaluation_error(done.output, self.root)
            if isinstance(error, FlakeEvaluationError) and error.is_absent:
                return FlakeVariants()
            raise error
        return answer


def _parse_answer(done: ProcessResult) -> FlakeVariants | None:
    """The JSON object among the lines."""
    for line in reversed(done.output.splitlines()):
        # Programs that Nix starts write to the same stream without ending their lines.
        at = line.find('{"offered"')
        if at >= 0:
            with suppress(DamagedFileError), reading("nix eval", _KIND):
                answer = parse_json(line[at:], "nix eval", _KIND)
                offered = {
                    str(name): Derivation(
                        str(entry["derivation"]),
                        str(entry["output"]),
                        str(entry.get("compiled", "")),
                    )
                    for name, entry in answer["offered"].items()
                }
                refused = {str(name): str(reason) for name, reason in answer["refused"].items()}
                return FlakeVariants(offered, refused)
    return None

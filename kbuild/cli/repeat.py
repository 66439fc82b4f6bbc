"""Commands that found nothing to do: what they said is said again while nothing has changed.

It follows from the command line, the folder, the environment, and what the command looked at
(`kbuild.runtime.file_state.Looks`). Whoever is answered from a record imports no model, parses no
option and starts no process. Whatever differs, the command runs as if there were no record, and
leaves another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli import find_command
from kbuild.cli.cache_folder import cache_folder, validate_cache_owner
from kbuild.code_digest import package_digest
from kbuild.record import Record, read_record
from kbuild.runtime.file_state import note_look, watch_looks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbuild.cli import CommandEntry

_MODULES = ("kbuild.cli.build", "kbuild.cli.plan")
"""Of the commands whose looks are noted wherever they look; a test compares."""
_WORKSPACE = ".kbuild"
_FOLDER = Path(_WORKSPACE, "repeat")
_KEPT = 16
"""Records of a project: command lines, terminals and environments differ."""
_LONGEST = 1 << 20
"""Characters: the plan of a large project as JSON has many."""
_SECONDS = 86400.0
"""After a day the command runs again: nobody has to trust a record for long."""
_OF_SESSIONS = frozenset((
    "_", "SHLVL", "PWD", "OLDPWD", "WINDOWID", "WINDOW", "STY", "TMUX",
    "TMUX_PANE", "TERM_SESSION_ID", "XDG_SESSION_ID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "INVOCATION_ID", "JOURNAL_STREAM", "PYTEST_CURRENT_TEST",
))  # fmt: skip
"""Variables that differ between terminals, and decide nothing."""
Words = list[tuple[str, str]]
"""What was printed, in order: the stream, and the text."""


def repeated(argv: Sequence[str]) -> int | None:
    """Print what this command line printed last time; None when it has to run.

    Returns:
        The exit code.

    Raises:
        OSError: nobody reads the output, or there is no room for it.
    """
    if not argv or not is_repeatable(find_command(argv[0])):
        return None
    try:
        cache = cache_folder(os.environ)
        validate_cache_owner(cache, os.environ)
        words = _known_words(argv, cache)
    except Exception:  # noqa: BLE001 - running the command says what is wrong
        return None
    if words is None:
        return None
    _say(words)
    return 0


def is_repeatable(command: CommandEntry | None) -> bool:
    """True for a command that may be answered from a record."""
    return command is not None and command.module in _MODULES


class Recording:
    """Of a command that runs: kept in the project when it turns out that nothing was to be done."""

    def __init__(self, argv: Sequence[str], words: Words) -> None:
        self._words = words
        self._name = _record_name(argv)
        self._looks = watch_looks()
        # Programs and modules are looked for in these.
        places = (*os.environ.get("PATH", os.defpath).split(os.pathsep), *sys.path)
        note_look(*(place or os.curdir for place in places))

    def keep(self, root: Path, cache: Path) -> None:
        """Keep what was printed, unless it depends on more than on files that stayed the same.

        Nothing is written to a project that was never built. A folder that cannot be written to is
        no failure.
        """
        is_short = sum(len(text) for _, text in self._words) <= _LONGEST
        is_kept = is_short and not self._looks.gap and (root / _WORKSPACE).is_dir()
        seen = self._looks.settled() if is_kept else None
        if seen is None:
            return
        until = min(time.time() + _SECONDS, self._looks.until or float("inf"))
        record = Record({"words": self._words}, seen, package_digest(cache), until)
        with suppress(OSError):
            record.write(root / _FOLDER / self._name)
            others = sorted((root / _FOLDER).iterdir(), key=lambda path: path.stat().st_mtime)
            for path in others[:-_KEPT]:
                path.unlink()


def _known_words(argv: Sequence[str], cache: Path) -> Words | None:
    name = _record_name(argv)
    # The project is the current folder or an argument; the name says the whole command line.
    for folder in (os.curdir, *(part for part in argv[1:] if not part.startswith("-"))):
        record = read_record(Path(folder, _FOLDER, name))
        if record is not None and record.holds(Path("/"), cache):
            return [(str(stream), str(text)) for stream, text in record.answer["words"]]
    return None


def _record_name(argv: Sequence[str]) -> str:
    variables = {name: text for name, text in os.environ.items() if name not in _OF_SESSIONS}
    streams = [sys.stdout.isatty() and _columns(), sys.stderr.isatty()]
    place = [os.getcwd(), sys.executable, getattr(os, "getuid", int)()]  # noqa: PTH109
    question = [list(argv), place, streams, variables]
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:32] + ".json"


def _columns() -> int:
    """Of the terminal that tables are made for."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return 0


def _say(words: Words) -> None:
    stream = ""
    try:
        for stream, text in words:
            target = sys.stderr if stream == "err" else sys.stdout
            target.write(text)
            if stream == "err":
                target.flush()
        stream = "out"
        sys.stdout.flush()
    except OSError as error:
        from kbuild.runtime.os_errors import STDOUT

        error.filename = STDOUT if stream == "out" else error.filename
        raise

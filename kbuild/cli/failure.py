"""Failures of commands: the message on stderr, and the exit code."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import gettempdir

from kbuild.system import os_errors
from kbuild.system.cache_folder import cache_folder
from kbuild.system.errors import KbuildError
from kbuild.system.redact import redacted, without_secrets
from kbuild.system.ui import Color, Ui

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells count."""
PIPE_CLOSED = 141
"""128 and the number of SIGPIPE: whoever read stdout went away."""
BUG = 70
"""`EX_SOFTWARE` of sysexits.h."""
_COLORS: dict[str, Color] = {"auto": "auto", "always": "always", "never": "never"}


def report_failure(error: Exception, argv: Sequence[str]) -> int:
    """Whatever ended a command: kbuild's own errors, what the system refuses, or a bug."""
    if isinstance(error, BrokenPipeError):
        # Nobody reads stdout any more: stay quiet, also when Python flushes at exit.
        _silence_stdout()
        return PIPE_CLOSED
    if isinstance(error, OSError) and error.filename == os_errors.STDOUT:
        _silence_stdout()
    known = (
        error
        if isinstance(error, KbuildError)
        else os_errors.explain_os_error(error, _writable_folders())
    )
    return report_bug(error, argv) if known is None else report_error(known, argv)


def report_error(error: KbuildError, argv: Sequence[str]) -> int:
    """A failure with its own message; with `--json` also as an object on stdout."""
    ui = Ui(color=_color(argv), verbosity=_verbosity(argv))
    try:
        # True when `--json` stands among kbuild's own arguments.
        own = argv[: argv.index("--")] if "--" in argv else argv
        if "--json" in own:
            ui.data_json({"error": error.to_json()})
        ui.flush()
    except OSError:  # nobody listens, or no room
        _silence_stdout()
    with suppress(OSError):
        ui.error(error)
    return error.code


def report_interrupt(signal: int = INTERRUPTED - 128) -> int:
    """The user pressed Ctrl-C, or another program sent a signal with this number."""
    code = 128 + signal
    with suppress(OSError):  # the terminal was closed
        Ui().say("interrupted" if code == INTERRUPTED else "terminated")
    return code


def _silence_stdout() -> None:
    """Discard output that waits to be written, also when Python flushes at exit."""
    with suppress(OSError, ValueError):  # no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _writable_folders() -> Iterator[Path]:
    """The folders that kbuild writes to, for an error that names none."""
    for place in (Path.cwd, lambda: cache_folder(os.environ), lambda: Path(gettempdir())):
        with suppress(OSError, KbuildError):
            yield place()


def report_bug(error: Exception, argv: Sequence[str]) -> int:
    """A bug: one line for the user, the traceback in a file for the report."""
    from kbuild import __version__

    trace = redacted("".join(traceback.format_exception(error)))
    command = redacted(" ".join(without_secrets(argv)))
    report = f"kbuild {__version__}, Python {sys.version}\nkbuild {command}\n\n{trace}"
    hint = _write_crash_report(report)
    bug = KbuildError(
        f"this is a bug in kbuild: {type(error).__name__}: {redacted(str(error)) or 'no message'}",
        hint=f"please report it with {hint}" if hint else "KBUILD_TRACEBACK=1 shows where",
    )
    report_error(bug, argv)
    if os.environ.get("KBUILD_TRACEBACK"):
        with suppress(OSError):
            sys.stderr.write(trace)
    return BUG


def _write_crash_report(report: str) -> str:
    try:
        folder = cache_folder(os.environ) / "crashes"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        target.write_text(report, encoding="utf-8", errors="backslashreplace")
    except (OSError, KbuildError):
        return ""
    return str(target)


def _color(argv: Sequence[str]) -> Color:
    """`--color` of a command line that may not be well formed."""
    for argument, following in pairwise((*argv, "")):
        if argument == "--color":
            return _COLORS.get(following, "auto")
        if argument.startswith("--color="):
            return _COLORS.get(argument.partition("=")[2], "auto")
    return "auto"


def _verbosity(argv: Sequence[str]) -> int:
    """1 where a command line that may not be well formed asks for more."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    return int(any(part == "--verbose" or part.rstrip("v") == "-" for part in own if part != "-"))

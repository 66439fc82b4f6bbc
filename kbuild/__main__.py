"""The console script: which command, and how a failure ends.

The one place that turns an exception into words on stderr and an exit code. `kbuild --help` and
`kbuild --version` are answered from constants, before anything is imported.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = {"-h", "--help", "help"}
_VERSION = {"-V", "--version"}
_USAGE = 2
"""As after any other command line that lacks something."""


def entry() -> None:
    """Run the installed `kbuild` program."""
    # Have all three streams, and have data take any path and any text.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - pathlib costs time
    if isinstance(sys.stdout, TextIOWrapper):
        is_utf8 = sys.stdout.encoding.lower() == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")
    _install_signal_handlers()
    sys.exit(main(sys.argv[1:]))


def _install_signal_handlers() -> None:
    """Make a request to end from another program, or a closed terminal, end as Ctrl-C does."""
    import _signal as signal  # type: ignore[import-not-found]  # signal itself loads enum

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, stop)


def main(argv: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    first = argv[0] if argv else ""
    if first in _VERSION:
        from kbuild import __version__

        return _print(f"kbuild {__version__}")
    if first in _HELP and len(argv) == 1:
        from kbuild.cli import overview

        return _print(overview())
    if not argv:
        from kbuild.cli import overview

        print(overview(), file=sys.stderr)  # noqa: T201 - answered before there is a Ui
        return _USAGE
    return _run_guarded([*argv[1:], "--help"] if first == "help" else argv)


def _print(text: str) -> int:
    try:
        print(text, flush=True)  # noqa: T201 - answered before there is a Ui
    except Exception as error:  # noqa: BLE001 - nobody reads, or no room
        return _report_failure(error, ())
    return 0


def _run_guarded(argv: Sequence[str]) -> int:
    from kbuild.cli import expand_alias

    argv = expand_alias(argv)
    try:
        if argv[0] == "build":
            from kbuild.cli.unchanged import repeat_build

            code = repeat_build(argv)
            if code is not None:
                return code
        from kbuild.cli import dispatch

        return dispatch.run(argv)
    except KeyboardInterrupt as request:
        from kbuild.cli import failure

        return failure.report_interrupt(*request.args)
    except Exception as error:  # noqa: BLE001 - the last line of defence
        return _report_failure(error, argv)


def _report_failure(error: Exception, argv: Sequence[str]) -> int:
    from kbuild.cli import failure

    return failure.report_failure(error, argv)


if __name__ == "__main__":
    entry()

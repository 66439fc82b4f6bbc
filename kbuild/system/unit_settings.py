"""Environment variables by which a run configures its compiler launchers.

And the log of units (one JSON object per line) to which they append.

Runs once per translation unit without `site`: imports next to nothing.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping


_PREFIX = "KBUILD_UNIT_"
RUN_VARIABLE = f"{_PREFIX}RUN"
_RUN, _CACHE, _TOOL = RUN_VARIABLE, f"{_PREFIX}CACHE", f"{_PREFIX}TOOL"
_MEMORY, _DEADLINE = f"{_PREFIX}MEMORY", f"{_PREFIX}DEADLINE"
_VARIANT, _ROOT = f"{_PREFIX}VARIANT", f"{_PREFIX}ROOT"
_COMPILERS = f"{_PREFIX}COMPILERS"
_JOBS = f"{_PREFIX}JOBS"
_HEADERS = f"{_PREFIX}HEADERS"


class LauncherSettings:
    """The settings of one run and one variant that a launcher needs."""

    def __init__(
        self,
        *,
        run: str,
        cache: str,
        memory: int,
        tool: str = "",
        deadline: float = 0.0,
        variant: str = "",
        root: str = "",
        compilers: str = "",
        jobs: int = 0,
        headers: int = 0,
    ) -> None:
        self.run = run
        """The run's folder: ledger, log, scratch files."""
        self.cache = cache
        """kbuild's cache folder; empty when nothing is to be kept."""
        self.memory = memory
        """The budget in MiB."""
        self.tool = tool
        """Name of `ccache` or the like, which caches in place of kbuild."""
        self.deadline = deadline
        """Seconds since the epoch; 0 when there is no end."""
        self.variant = variant
        self.root = root
        """The project, which units are named relative to."""
        self.compilers = compilers
        """Versions of the compilers, `c++=12.2.0;cuda=13.0.88`: a program may be a wrapper."""
        self.jobs = jobs
        """Compiler processes of all variants together; 0 when nothing keeps count of them."""
        self.headers = headers
        """Bytes that precompiled headers may take; 0 when all headers are to be read as usual."""

    @property
    def ledger(self) -> str:
        """The memory ledger."""
        return f"{self.run}/ledger"

    @property
    def log(self) -> str:
        """The log of the units."""
        return f"{self.run}/units.jsonl"

    def is_over(self) -> bool:
        """True when nothing may start any more."""
        return bool(self.deadline) and time.time() >= self.deadline

    def to_environment(self) -> dict[str, str]:
        """The variables that `read_launcher_settings` reads."""
        return {
            _RUN: self.run,
            _CACHE: self.cache,
            _TOOL: self.tool,
            _MEMORY: str(self.memory),
            _DEADLINE: f"{self.deadline:.3f}",
            _VARIANT: self.variant,
            _ROOT: self.root,
            _COMPILERS: self.compilers,
            _JOBS: str(self.jobs),
            _HEADERS: str(self.headers),
        }


def read_launcher_settings(environ: Mapping[str, str]) -> LauncherSettings | None:
    """The run's settings; None for a compiler that is started outside of any run."""
    if not environ.get(_RUN):
        return None
    return LauncherSettings(
        run=environ[_RUN],
        cache=environ.get(_CACHE, ""),
        tool=environ.get(_TOOL, ""),
        memory=int(environ.get(_MEMORY, "0")),
        deadline=float(environ.get(_DEADLINE, "0")),
        variant=environ.get(_VARIANT, ""),
        root=environ.get(_ROOT, ""),
        compilers=environ.get(_COMPILERS, ""),
        jobs=int(environ.get(_JOBS, "0")),
        headers=int(environ.get(_HEADERS, "0")),
    )


if TYPE_CHECKING:
    from json.encoder import encode_basestring_ascii as _quoted
else:
    try:
        from _json import encode_basestring_ascii as _quoted  # json itself loads re
    except ImportError:
        from json.encoder import encode_basestring_ascii as _quoted

LogValue = str | int | float | bool


def append_record(path: str, record: dict[str, LogValue]) -> None:
    """Add one line; lines of concurrent writers do not mix."""
    members = ", ".join(f"{_quoted(name)}: {_json_text(value)}" for name, value in record.items())
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # One write to a file with O_APPEND: lines of other launchers come before or after it.
        os.write(handle, f"{{{members}}}\n".encode())
    finally:
        os.close(handle)


def _json_text(value: LogValue) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

"""Answers a build that would find nothing to do with what the build before it printed.

A project keeps one record: the command line and environment, kbuild's digest, and the status of the
project's files, of git's state, and of compilers and interpreters. While nothing differs, no model
is imported and no process is started. Otherwise the command runs, and decides by content.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from kbuild.system.cache import BUILD_STATE, FILLED_CARD, PRINTED_WARNINGS, UNCHANGED_BUILD, Cache
from kbuild.system.cache_folder import cache_folder, validate_cache_owner
from kbuild.system.code_digest import package_digest
from kbuild.system.file_state import may_have_changed_since, stat_state
from kbuild.system.record import Record, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = ".kbuild"
_MOST_PATHS = 20_000
_SECONDS = 3600.0
"""Seconds for which a record is valid: a build forgets after a time that Nix does not work here."""
_OF_SESSIONS = (
    "_", "SHLVL", "PWD", "OLDPWD", "WINDOWID", "TMUX", "TMUX_PANE", "TERM_SESSION_ID",
    "XDG_SESSION_ID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "INVOCATION_ID",
    "JOURNAL_STREAM", "PYTEST_CURRENT_TEST",
)  # fmt: skip
"""Variables that differ between terminals. Compilers read too many of the others to list them."""


def repeat_build(argv: Sequence[str]) -> int | None:
    """Print what this command line printed last time; None when it has to run.

    Raises:
        OSError: nobody reads the output, or there is no room for it.
    """
    try:
        cache = cache_folder(os.environ)
        validate_cache_owner(cache, os.environ)
        # The project is the current folder or an argument.
        folders = (os.curdir, *(part for part in argv[1:] if not part.startswith("-")))
        records = filter(None, map(_read, folders))
        same = (one for one in records if one.answer["question"] == _question(argv))
        record = next(one for one in same if one.holds(Path("/"), cache))
        printed = [(stream == "err", str(text)) for stream, text in record.answer["printed"]]
    except Exception:  # noqa: BLE001 - there is no record that can be used, so the command runs
        return None
    for is_error, text in printed:
        stream = sys.stderr if is_error else sys.stdout
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            error.filename = None if is_error else "standard output"
            raise
    return 0


def record_build(
    argv: Sequence[str], printed: Sequence[tuple[str, str]], root: Path, cache: Path, since: int
) -> None:
    """Keep what a build printed, as pairs of a stream (`out` or `err`) and a text.

    Nothing is kept of a build that did something: what it depends on is then not older than
    `since`, when the command began.
    """
    from kbuild.project.config.dependencies import libraries

    # Such a variable names a folder of headers, whose files are listed nowhere.
    if any(os.environ.get(library.source_dir or "") for library in libraries().values()):
        return
    paths = [*_project_paths(root), *_git_paths(root), *_program_paths(cache), *argv]
    observed = {path: stat_state(path) for path in map(os.path.abspath, paths)}
    is_old = not any(state and may_have_changed_since(state, since) for state in observed.values())
    if is_old and len(observed) < _MOST_PATHS and (root / _FOLDER).is_dir():
        answer = {"question": _question(argv), "printed": printed}
        record = Record(answer, observed, package_digest(cache), time.time() + _SECONDS)
        record.write(Cache(root / _FOLDER, UNCHANGED_BUILD))


def _read(project: str) -> Record | None:
    return read_record(Cache(os.path.join(project, _FOLDER), UNCHANGED_BUILD))


def _question(argv: Sequence[str]) -> str:
    """A digest of the command line and everything that gives it its meaning."""
    variables = {name: text for name, text in os.environ.items() if name not in _OF_SESSIONS}
    # The printed text depends on the terminal: its width, and colours.
    columns = [os.get_terminal_size(n).columns if os.isatty(n) else 0 for n in (1, 2)]
    place = [os.getcwd(), sys.executable, getattr(os, "getuid", int)(), columns]
    question = json.dumps([list(argv), place, variables], sort_keys=True)
    return hashlib.sha256(question.encode()).hexdigest()


def _project_paths(root: Path) -> Iterator[str | Path]:
    """Folders and files of the project, and the files that its builds read and wrote."""
    from kbuild.build.state import read_state

    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith(".") and name != "__pycache__"]
        yield from (folder, *(os.path.join(folder, name) for name in files))
        if ".git" in files:  # a submodule
            yield from _git_paths(Path(folder))
    yield Cache(root / _FOLDER, FILLED_CARD).path()
    yield Cache(root / _FOLDER / "report", PRINTED_WARNINGS).path()
    for workspace in (root / _FOLDER).glob("*/"):
        state = read_state(workspace)
        yield Cache(workspace, BUILD_STATE).path()
        if state is not None:
            yield from (root / name for name in state.observed)


def _git_paths(folder: Path) -> Iterator[str | Path]:
    """Files that git's answers about a folder follow from."""
    from kbuild.system.git import Repository
    from kbuild.system.processes import LocalRunner

    home, repository = os.path.expanduser("~"), Repository(folder, LocalRunner())
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    yield from ("/etc/gitconfig", f"{home}/.gitconfig", f"{settings}/git/config")
    entries = (above / ".git" for above in (folder.resolve(), *folder.resolve().parents))
    yield from (entry for entry in entries if not entry.is_dir())  # git writes into its folder
    branch = repository.ask("symbolic-ref", "--quiet", "HEAD") or "HEAD"
    names = ("HEAD", branch, "index", "packed-refs", "config", "info/attributes")
    asked = (part for name in names for part in ("--git-path", name))
    paths = repository.ask("rev-parse", *asked) or ""
    yield from (folder / path for path in paths.splitlines())


def _program_paths(cache: Path) -> Iterator[str | Path]:
    """Folders of compilers, interpreters and toolchains, and programs that kbuild has asked."""
    from kbuild.toolchains.facts import FactCache

    ends = ("_HOME", "_PATH", "_ROOT", "VIRTUAL_ENV")
    yield from (*os.environ.get("PATH", os.defpath).split(os.pathsep), *sys.path)
    yield from (text for name, text in os.environ.items() if name.endswith(ends))
    yield from ("/opt", "/opt/rocm", "/opt/rocm/.info/version", "/usr/local", "/usr/local/cuda")
    yield from ("/nix/var/nix/profiles/default/bin", "/proc/driver/nvidia/gpus", cache / "store")
    yield from FactCache(cache).watched_paths()

"""Questions to git about a folder: they change nothing, and run nothing of the folder's.

A repository's configuration names programs: filters, hooks, a file system monitor, `gpg`, what
speaks to a remote. git is asked for what its objects and its index hold, by commands that start
none of them; the files themselves are read here. A file is unchanged when it looks as the index
remembers it, or else when its content is the blob's, also with the line ends that git gave it, or
as the file that a pointer of git-lfs stands for. What another filter made of a file is not known
without running it: such a file is unchanged only while it looks as the index remembers it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.runtime.file_state import are_looks_noted, note_gap, note_look
from kbuild.runtime.files import sha256_of_file
from kbuild.runtime.processes import ProcessResult, Runner

# A git that calls kbuild (a hook, `git rebase --exec`) leaves its own repository in these.
_REPOSITORY_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
)  # fmt: skip
_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor="),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.quotepath=on"),
)
_STAGED = ("diff-index", "--cached", "--raw", "--no-ext-diff", "--ignore-submodules=dirty")
_CHANGE = re.compile(r"^:\d{6} ", re.MULTILINE)
_AS_IN_THE_COMMIT = "H"
"""`git ls-files -v` marks with other letters what git was told not to look at."""
_ENTRY = re.compile(
    r"^(?P<mode>\d{6}) (?P<id>[0-9a-f]+) (?P<stage>\d)\t(?P<path>.+)"
    r"(?:\n  ctime: (\d{1,20}):(\d{1,20})\n  mtime: (\d{1,20}):(\d{1,20})"
    r"\n  dev: \d+\tino: (\d{1,20})\n  uid: \d+\tgid: \d+"
    r"\n  size: (\d{1,20})\tflags: (?P<flags>[0-9a-f]{1,8})$)?",
    re.MULTILINE,
)
"""`git ls-files --stage --debug`; without what follows the path, every file is read."""
_QUOTED = re.compile(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_EXECUTABLE, _LINK, _SUBMODULE = "100755", "120000", "160000"
_ALGORITHMS = {40: "sha1", 64: "sha256"}
"""By the digits of an id."""
_ASSUMED, _ADDED_LATER, _SKIPPED = 1 << 15, 1 << 29, 1 << 30
"""Flags of entries: `--assume-unchanged`, `git add --intent-to-add`, `--skip-worktree`."""
_DECIDING = ("HEAD", "index", "packed-refs", "config", "info/attributes", "reftable/tables.list")
"""Files of a repository that answers depend on, beside the branch."""
_WORD = 0xFFFF_FFFF
"""The index keeps so many bits of a number."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's times tell a later change apart."""
_POINTER = re.compile(
    r"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.+\n)*oid sha256:([0-9a-f]{64})\n"
    r"size \d+"
)
_POINTER_SIZE = 1024
_TEXT = ("text", "crlf", "eol")
_REWRITES = ("filter", "ident", "working-tree-encoding")
_CRLF = b"\r\n"


@dataclass(frozen=True)
class _IndexEntry:
    """A file as the index knows it."""

    mode: str
    blob: str
    is_merged: bool
    path: str
    stamp: tuple[int, ...]
    """Both times, inode and size; empty when they are not known."""
    flags: int

    @property
    def changed(self) -> int:
        """When the file changed last, in nanoseconds."""
        return self.stamp[0] * 1_000_000_000 + self.stamp[1] if self.stamp else 0

    def looks_like(self, status: os.stat_result) -> bool:
        """True when the file looks as it did when git last read it."""
        times = (divmod(ns, 1_000_000_000) for ns in (status.st_ctime_ns, status.st_mtime_ns))
        numbers = (*(part for time in times for part in time), status.st_ino, status.st_size)
        return self.stamp == tuple(number & _WORD for number in numbers)


@dataclass(frozen=True)
class Repository:
    """The repository that a folder is in, if it is in one."""

    folder: Path
    runner: Runner

    def ask(self, *arguments: str) -> str | None:
        """What git answers, without white space around it; None when it fails."""
        done = self._run(*arguments)
        return done.output.strip() if done.ok else None

    def refusal(self) -> str:
        """Why git does not look at the folder although it is in a repository; empty otherwise."""
        done = self._run("rev-parse", "--git-dir")
        lines = [line for line in done.output.splitlines() if "dubious ownership" in line]
        return "" if done.ok or not lines else lines[0].removeprefix("fatal: ")

    def time_of(self, commit: str) -> int | None:
        """When a commit was made, in seconds since the epoch; None when it is not here.

        `git show` would have a signature verified, by the program that the repository names.
        """
        text = self.ask("cat-file", "commit", commit) or ""
        header = text.partition("\n\n")[0]
        match = re.search(r"^committer .*> (\d{1,20}) [-+]\d+$", header, re.MULTILINE)
        return int(match[1]) if match else None

    def note_looks(self) -> None:
        """Note the files that answers about the folder's commit and its files follow from.

        git's folder itself changes with every command that locks something.
        """
        if not are_looks_noted():
            return
        note_look(*_configuration_files(os.environ))
        for folder in (real := Path(os.path.realpath(self.folder)), *real.parents):
            if (folder / ".git").is_dir():
                break
            note_look(folder / ".git")
        branch = self.ask("symbolic-ref", "--quiet", "HEAD") or "HEAD"
        names = (part for name in (*_DECIDING, branch) for part in ("--git-path", name))
        paths = self.ask("rev-parse", *names)
        if paths is None:  # no repository, or one that git does not look at
            return
        note_look(*(self.folder / path for path in paths.splitlines()))
        for entry in _parse_index(self.ask("ls-files", "--stage", "--", ".") or ""):
            if entry.mode in {_LINK, _SUBMODULE}:
                note_gap(f"`{entry.path}` is a link or a submodule")
            note_look(self.folder / entry.path)

    def is_changed(self, *paths: str) -> bool:
        """True when tracked files differ from the commit, those of submodules included."""
        staged = self.ask(*_STAGED, "HEAD", "--", *paths)
        return staged is None or bool(_CHANGE.search(staged)) or self.is_edited(*paths)

    def is_edited(self, *paths: str) -> bool:
        """True when tracked files differ from the index, those of submodules included.

        A file whose times changed and whose content did not is not edited.
        """
        listed = self.ask("ls-files", "--stage", "--debug", "--", *paths)
        index = self.ask("rev-parse", "--git-path", "index")
        if listed is None or index is None:
            return True
        try:
            written = (self.folder / index).stat().st_mtime_ns
        except OSError:  # nothing was ever added
            written = 0
        return any(self._is_edited(entry, written) for entry in _parse_index(listed))

    def uncommitted(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of some files of the folder that no commit holds, whatever `is_changed` says.

        They are untracked, ignored, outside the repository behind a link, or marked as not to be
        compared (`git update-index --assume-unchanged`).
        """
        root, folders = os.path.realpath(self.folder), dict[str, str]()
        wanted = {path: _places(root, path, folders) for path in paths}
        known = self._known(below=":/" if any(map(_leads_outside, wanted.values())) else ".")
        return tuple(sorted(path for path, places in wanted.items() if not places <= known))

    def files(self) -> tuple[str, ...] | None:
        """Files below the folder that are tracked, or that git does not ignore; None without git.

        Paths are relative to the folder.
        """
        listed = self.ask("ls-files", "--cached", "--others", "--exclude-standard", "--", ".")
        return None if listed is None else tuple(map(_unquoted, listed.splitlines()))

    def copy(self, commit: str, into: Path) -> ProcessResult:
        """The files of a commit in a folder that does not exist yet: a clone without hooks.

        Nothing is taken over from the repository's configuration. What the caller's own
        configuration says of filters holds.
        """
        top = self.ask("rev-parse", "--show-toplevel") or str(self.folder)
        into.parent.mkdir(parents=True, exist_ok=True)
        clone = ("clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", top)
        done = self._run(*clone, str(into), cwd=into.parent, protocols="file")
        if done.ok:
            checkout = ("-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach")
            done = self._run(*checkout, commit, cwd=into)
        return done

    def _known(self, below: str) -> set[str]:
        listed = self.ask("ls-files", "-v", "--recurse-submodules", "--", below) or ""
        entries = (line.partition(" ") for line in listed.splitlines())
        return {_unquoted(path) for letter, _, path in entries if letter == _AS_IN_THE_COMMIT}

    def _is_edited(self, entry: _IndexEntry, written: int) -> bool:
        """See `is_edited`; `written` is when the index was written."""
        if entry.flags & (_ASSUMED | _SKIPPED):
            return False
        if not entry.is_merged or entry.flags & _ADDED_LATER:
            return True
        path = self.folder / entry.path
        if entry.mode == _SUBMODULE:
            return self._is_other_commit(entry, path)
        try:
            status = path.lstat()
            looks_old = entry.looks_like(status) and entry.changed < written
            if looks_old and entry.changed < written - _SETTLED:
                return False
            return not self._is_blob(entry, path, status, looks_old=looks_old)
        except OSError:  # it is gone, or cannot be read
            return True

    def _is_other_commit(self, entry: _IndexEntry, path: Path) -> bool:
        if not (path / ".git").exists():  # it is not checked out
            return False
        inner = Repository(path, self.runner)
        return inner.ask("rev-parse", "HEAD") != entry.blob or inner.is_changed(".")

    def _is_blob(
        self, entry: _IndexEntry, path: Path, status: os.stat_result, *, looks_old: bool
    ) -> bool:
        """True when the file is what the index holds."""
        if not self._is_of_mode(entry.mode, status):
            return False
        if entry.mode == _LINK:
            return _id_of(os.fsencode(path.readlink()), like=entry.blob) == entry.blob
        own = _id_of_file(path, status.st_size, like=entry.blob)
        return own == entry.blob or self._is_converted(entry, path, looks_old=looks_old)

    def _is_of_mode(self, mode: str, status: os.stat_result) -> bool:
        if mode == _LINK:
            return stat.S_ISLNK(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            return False
        kept = bool(status.st_mode & stat.S_IXUSR) == (mode == _EXECUTABLE)
        return kept or self.ask("config", "--type=bool", "core.fileMode") == "false"

    def _is_converted(self, entry: _IndexEntry, path: Path, *, looks_old: bool) -> bool:
        """True when git made the file of the blob, or would make the blob of the file."""
        if self._is_fetched(entry.blob, path):
            return True
        attributes = self._attributes(entry.path)
        if any(attributes.get(name, "unset") not in {"unset", "unspecified"} for name in _REWRITES):
            return looks_old
        if not self._is_text(attributes):
            return False
        return _id_of(path.read_bytes().replace(_CRLF, b"\n"), like=entry.blob) == entry.blob

    def _is_fetched(self, blob: str, path: Path) -> bool:
        """True when the blob is a pointer of git-lfs to the file's content."""
        size = self.ask("cat-file", "-s", blob) or ""
        if not size.isdecimal() or int(size) > _POINTER_SIZE:
            return False
        pointer = _POINTER.match(self.ask("cat-file", "blob", blob) or "")
        return pointer is not None and sha256_of_file(path) == pointer[1]

    def _attributes(self, path: str) -> Mapping[str, str]:
        output = self.ask("check-attr", *_TEXT, *_REWRITES, "--", path) or ""
        rows = (line.rsplit(": ", 2) for line in output.splitlines())
        return {row[1]: row[2] for row in rows if len(row) == 3}  # noqa: PLR2004 - path, name, value

    def _is_text(self, attributes: Mapping[str, str]) -> bool:
        states = {name: attributes.get(name, "unspecified") for name in _TEXT}
        if states["text"] == "unset" or states["crlf"] == "unset":
            return False
        if any(value != "unspecified" for value in states.values()):
            return True
        return self.ask("config", "core.autocrlf") in {"true", "input"}

    def _run(
        self, *arguments: str, cwd: Path | None = None, protocols: str = "none"
    ) -> ProcessResult:
        command = ("git", *_OPTIONS, *arguments)
        # Without locks, and without fetching what a partial clone lacks.
        kept = {key: value for key, value in os.environ.items() if key not in _REPOSITORY_VARIABLES}
        own = {
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": protocols,
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C.UTF-8",
        }
        return self.runner.run(command, cwd=cwd or self.folder, env=kept | own)


def _configuration_files(environ: Mapping[str, str]) -> Iterator[str]:
    """Where git's settings are that hold outside a repository, there or not."""
    home = os.path.expanduser("~")  # noqa: PTH111 - never fails
    yield environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig"
    yield environ.get("GIT_CONFIG_GLOBAL") or os.path.join(home, ".gitconfig")
    yield os.path.join(environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git", "config")


def _parse_index(listed: str) -> Iterator[_IndexEntry]:
    for match in _ENTRY.finditer(listed):
        stamp = tuple(int(match[at]) for at in range(5, 11)) if match["flags"] else ()
        yield _IndexEntry(
            match["mode"],
            match["id"],
            match["stage"] == "0",
            _unquoted(match["path"]),
            stamp,
            int(match["flags"] or "0", 16),
        )


def _unquoted(name: str) -> str:
    """A path as git prints it: in quotes, with escapes, where that is needed."""
    if not name.startswith('"'):
        return name

    def byte(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        code = int(escape, 8) if len(escape) > 1 else _ESCAPES[escape[0]]
        return bytes((code,))

    return os.fsdecode(_QUOTED.sub(byte, name[1:-1].encode()))


def _id_of(data: bytes, like: str) -> str:
    """What git calls that content, in a repository with ids such as `like`."""
    hashed = hashlib.new(_ALGORITHMS[len(like)], b"blob %d\0" % len(data))
    hashed.update(data)
    return hashed.hexdigest()


def _id_of_file(path: Path, size: int, like: str) -> str:
    """See `_id_of`; the file need not fit into memory."""
    hashed = hashlib.new(_ALGORITHMS[len(like)], b"blob %d\0" % size)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()


def _places(root: str, path: str, folders: dict[str, str]) -> set[str]:
    """The path, and where it leads to when links are followed, both from the root.

    `folders` remembers where those lead to; a large project has few of them.
    """
    normal = os.path.normpath(path)
    folder, name = os.path.split(normal)
    if folder not in folders:
        folders[folder] = os.path.realpath(os.path.join(root, folder))
    real = os.path.join(folders[folder], name)
    if name in (os.curdir, os.pardir) or os.path.islink(real):
        real = os.path.realpath(real)
    prefix = root.rstrip(os.sep) + os.sep
    target = real[len(prefix) :] if real.startswith(prefix) else os.path.relpath(real, root)
    return {place.replace(os.sep, "/") for place in (normal, target)}


def _leads_outside(places: set[str]) -> bool:
    return any(place.startswith("../") for place in places)

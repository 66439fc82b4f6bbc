"""Reads git's state of a folder, without changing it or running its programs.

A repository's configuration names programs: filters, hooks, a file system monitor, `gpg`, what
speaks to a remote. git is started with each of them switched off. A file that a filter made, one
of git-lfs for example, is therefore known to be unchanged only while it has the times and the size
that git remembers; after that it counts as edited.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kbuild.system.processes import ProcessResult, Runner

# A git that calls kbuild (a hook, `git rebase --exec`) leaves its own repository in these.
_REPOSITORY_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
)  # fmt: skip
_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor="),
    *("-c", f"core.hooksPath={os.devnull}"),
)
# git would start another git in each submodule, without our options.
_STATUS = (
    "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames",
)  # fmt: skip
_CHANGED = re.compile(r"^[MTADU ]{2} ", re.MULTILINE)
_EDITED = re.compile(r"^[MTADU ][MTADU] ", re.MULTILINE)
"""The second letter compares the file with the index, the first one the index with the commit."""
# 160000 is the mode of a submodule.
_SUBMODULE = re.compile(r"(?:^|\0)160000 [0-9a-f]+ \d\t([^\0]+)")
_AS_IN_THE_COMMIT = "H"
"""Letter of `git ls-files -v` for files that git compares; others mark files it was told to ignore.
"""


@dataclass(frozen=True)
class Repository:
    """The repository that a folder is in, if it is in one."""

    folder: Path
    runner: Runner

    def ask(self, *arguments: str) -> str | None:
        """Run git and return its output, without surrounding white space; None if it fails."""
        done = self._run(*arguments)
        return done.output.strip() if done.ok else None

    def refusal(self) -> str:
        """Reason why git does not read the folder although it is in a repository; else empty."""
        done = self._run("rev-parse", "--git-dir")
        lines = [line for line in done.output.splitlines() if "dubious ownership" in line]
        return "" if done.ok or not lines else lines[0].removeprefix("fatal: ")

    def is_changed(self, *paths: str) -> bool:
        """True when tracked files differ from the commit, those of submodules included."""
        return self._has(_CHANGED, paths)

    def is_edited(self, *paths: str) -> bool:
        """True when tracked files differ from the index, those of submodules included."""
        return self._has(_EDITED, paths)

    def _has(self, change: re.Pattern[str], paths: Iterable[str]) -> bool:
        """True when git reports such a change, or cannot be asked safely."""
        options = self._without_filters()
        listed = self.ask("ls-files", "-z", "--stage", "--", *paths)
        if options is None or listed is None:
            return True
        done = self._run(*options, *_STATUS, "--", *paths)
        if not done.ok or change.search(done.output):
            return True
        submodules = (self.folder / path for path in _SUBMODULE.findall(listed))
        return any(
            Repository(folder, self.runner).is_changed(".")
            for folder in submodules
            if (folder / ".git").exists()  # it is checked out
        )

    def _without_filters(self) -> tuple[str, ...] | None:
        """Options that switch every configured filter off; None when one has no usable name."""
        done = self._run("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        names = {key.rpartition(".")[0] for key in done.output.split("\0") if "." in key}
        # `-c` takes the name up to the first `=`.
        if any("=" in name or "\n" in name for name in names):
            return None
        off = ("clean=", "smudge=", "process=", "required=false")
        return tuple(
            part for name in sorted(names) for value in off for part in ("-c", f"{name}.{value}")
        )

    def uncommitted(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Files of the folder whose content no commit holds, whatever `is_changed` says.

        They are untracked, ignored, outside the repository behind a link, or marked as not to be
        compared (`git update-index --assume-unchanged`).
        """
        root = os.path.realpath(self.folder)
        # Each path, and where it leads to when links are followed, both from the root.
        links = {path: os.path.realpath(os.path.join(root, path)) for path in paths}
        wanted = {
            path: {os.path.normpath(path), os.path.relpath(real, root)}
            for path, real in links.items()
        }
        outside = any(place.startswith("../") for places in wanted.values() for place in places)
        below = ":/" if outside else "."
        listed = self.ask("ls-files", "-z", "-v", "--recurse-submodules", "--", below) or ""
        entries = (entry.partition(" ") for entry in listed.split("\0"))
        known = {path for letter, _, path in entries if letter == _AS_IN_THE_COMMIT}
        return tuple(sorted(path for path, places in wanted.items() if not places <= known))

    def files(self) -> tuple[str, ...] | None:
        """Files below the folder that are tracked, or that git does not ignore; None without git.

        Paths are relative to the folder.
        """
        listed = self.ask("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")
        return None if listed is None else tuple(filter(None, listed.split("\0")))

    def copy(self, commit: str, into: Path) -> ProcessResult:
        """The files of a commit in a folder that does not exist yet: a clone without hooks.

        It takes nothing from the repository's configuration; the caller's own filters run.
        """
        top = self.ask("rev-parse", "--show-toplevel") or str(self.folder)
        into.parent.mkdir(parents=True, exist_ok=True)
        clone = ("clone", "--quiet", "--shared", "--no-checkout", "--template=", "--", top)
        # A clone of a folder uses git's protocol `file`; all others stay forbidden.
        done = self._run(*clone, str(into), cwd=into.parent, protocols="file")
        if done.ok:
            checkout = ("-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach")
            done = self._run(*checkout, commit, cwd=into)
        return done

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

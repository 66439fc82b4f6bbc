"""Questions to git about a folder: they change nothing, and are of that folder's repository."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.run import Done, Runner

# A git that calls kbuild (a hook, `git rebase --exec`) leaves its own repository in these.
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX",
            "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE")  # fmt: skip
_AS_IN_THE_COMMIT = "H"
"""`git ls-files -v` marks with other letters what git was told not to look at."""
# Files that nobody added say nothing by themselves: a build looks up those that it uses.
_STATUS = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=untracked")


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

    def is_changed(self, *paths: str) -> bool:
        """True when tracked files differ from the commit, those of submodules included."""
        return bool(self.ask(*_STATUS, "--", *paths))

    def uncommitted(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of some files of the folder that no commit holds, whatever `is_changed` says.

        They are untracked, ignored, outside the repository behind a link, or marked as not to be
        compared (`git update-index --assume-unchanged`).
        """
        wanted = {path: _places(self.folder, path) for path in paths}
        known = self._known(below=":/" if any(map(_leaves, wanted.values())) else ".")
        return tuple(sorted(path for path, places in wanted.items() if not places <= known))

    def _known(self, below: str) -> set[str]:
        listed = self.ask("ls-files", "-v", "-z", "--recurse-submodules", "--", below) or ""
        entries = (entry.partition(" ") for entry in listed.split("\0") if entry)
        return {path for letter, _, path in entries if letter == _AS_IN_THE_COMMIT}

    def _run(self, *arguments: str) -> Done:
        command = ("git", "-c", "core.quotepath=off", *arguments)
        return self.runner.run(command, cwd=self.folder, env=_environment(os.environ))


def _places(folder: Path, path: str) -> set[str]:
    """The path, and where it leads to when links are followed, both from the folder."""
    root = folder.resolve()
    target = os.path.relpath((root / path).resolve(), root).replace(os.sep, "/")
    return {os.path.normpath(path).replace(os.sep, "/"), target}


def _leaves(places: set[str]) -> bool:
    return any(place.startswith("../") for place in places)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in environ.items() if key not in _FOREIGN}
    return kept | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}

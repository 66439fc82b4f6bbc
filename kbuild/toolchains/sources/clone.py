"""Headers out of a git repository, at the tag of the release, which must stay the commit it was.

Nothing of the repository is run: no hooks, no submodules. Nor is anything of a repository that
kbuild happens to run in: git works in a folder of kbuild's, and looks for none above it. A server
that does not answer is given up after `PATIENCE` seconds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.run import Done, Runner
from kbuild.toolchains.sources.commits import Commits
from kbuild.toolchains.sources.download import Download
from kbuild.toolchains.sources.pins import Pin

PATIENCE = 20
"""Seconds that a server may take to say what a tag is."""
_STALLED = ("-c", "http.lowSpeedLimit=1000", "-c", f"http.lowSpeedTime={PATIENCE}")
_AS_COMMITTED = ("-c", "core.autocrlf=false", "-c", "advice.detachedHead=false",
                 "-c", f"core.hooksPath={os.devnull}")  # fmt: skip


def from_git(
    pin: Pin, runner: Runner, environ: Mapping[str, str], commits: Commits
) -> Download | str:
    """The way through git, or why there is none."""
    repository = pin.library.repository
    if repository is None:
        return f"no repository with {pin.library.title} is known"
    if shutil.which("git", path=environ.get("PATH")) is None:
        return "there is no git program"
    git = Git(runner, environ)

    def make(root: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=".clone-") as scratch:
            tree = Path(scratch, "tree")
            commit = git.clone(repository, pin.tag, tree)
            commits.confirm(repository, pin.tag, commit)
            keep(tree, root, pin.library.include)
        return {
            "origin": f"git tag {pin.tag}, commit {commit[:12]}",
            "digest": f"commit:{commit}",
            "sources": [{"repository": repository, "tag": pin.tag, "commit": commit, "fetched": 0}],
        }

    return Download(
        pin=pin,
        way=f"git tag {pin.tag}",
        origin=f"git tag {pin.tag}, not fetched yet",
        digest="",
        inputs={"repository": repository, "tag": pin.tag, "include": list(pin.library.include)},
        make=make,
    )


class Git:
    """Runs git without questions, and without what a calling git left in the environment."""

    def __init__(self, runner: Runner, environ: Mapping[str, str]) -> None:
        self.runner = runner
        own = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C.UTF-8"}
        left = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
        self.env = {key: value for key, value in environ.items() if key not in left} | own

    def clone(self, repository: str, tag: str, target: Path) -> str:
        """Clone one tag without its history; answers with the commit.

        Raises:
            ToolchainError: in git's own words.
        """
        found = self._run(target, "ls-remote", repository, f"refs/tags/{tag}", patience=PATIENCE)
        if not found.output.strip():
            raise ToolchainError(f"the repository has no tag {tag}")
        options = ("--quiet", "--depth", "1", "--no-recurse-submodules", "--template=")
        self._run(target, "clone", *options, "--branch", tag, "--", repository, str(target))
        return self._run(target, "-C", str(target), "rev-parse", "HEAD").output.strip()

    def _run(self, target: Path, *arguments: str, patience: int | None = None) -> Done:
        limit = ("timeout", str(patience)) if patience and shutil.which("timeout") else ()
        command = (*limit, "git", *_STALLED, *_AS_COMMITTED, *arguments)
        beside = target.parent.resolve()
        env = {**self.env, "GIT_CEILING_DIRECTORIES": str(beside.parent)}
        done = self.runner.run(command, cwd=beside, env=env)
        if not done.ok:
            raise ToolchainError(_last_words(done, patience))
        return done


def keep(tree: Path, root: Path, include: tuple[str, ...]) -> None:
    """Move the include folders and the licences of a tree to `root`."""
    for folder in include:
        if (tree / folder).is_dir():
            (root / folder).parent.mkdir(parents=True, exist_ok=True)
            (tree / folder).rename(root / folder)
    for path in tree.glob("LICENSE*"):
        path.rename(root / path.name)


def _last_words(done: Done, patience: int | None) -> str:
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    silence = f"no answer within {patience} seconds" if patience else f"exit {done.returncode}"
    return next(iter((*fatal, *lines[-1:])), silence)

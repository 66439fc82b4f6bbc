"""Another place to build in: the same source in a fresh folder, in other surroundings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import KbuildError
from kbuild.git import Repository
from kbuild.metadata import GitState
from kbuild.run import Done, Listener, Runner
from kbuild.sourcetree import SourceTree

_LEFT_OUT = {"build", "result"}


@dataclass(frozen=True)
class Elsewhere:
    """A `Runner` whose processes see some variables with other values, and inherit more."""

    inner: Runner
    changes: Mapping[str, str]
    inherit: tuple[int, ...] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        listen: Listener | None = None,
        stdin: str | None = None,
        inherit: Sequence[int] = (),
    ) -> Done:
        """See `Runner.run`."""
        whole = {**(os.environ if env is None else env), **self.changes}
        held = (*inherit, *self.inherit)
        return self.inner.run(
            argv, cwd=cwd, env=whole, log=log, listen=listen, stdin=stdin, inherit=held
        )

    def stop(self) -> None:
        """See `Runner.stop`."""
        self.inner.stop()


@dataclass(frozen=True)
class FreshSource:
    """A copy of the source, and what is to be known about it."""

    root: Path
    """The project's folder in the copy."""
    warnings: tuple[str, ...] = ()


def fresh_source(root: Path, recorded: GitState | None, into: Path, runner: Runner) -> FreshSource:
    """The source that a variant was built from: its commit, where git here has it.

    Args:
        root: the project's folder.
        recorded: what the variant says of its source; None when that was not in git.
        into: a folder that does not exist yet.
        runner: starts git.

    Returns:
        The copy; its files are those of `root` for a variant from changed files, from outside of
        git, or from a commit that is not here. The warnings say when that matters.
    """
    if recorded is None:
        return _copied(root, into)
    short = recorded.commit[:12]
    repository = Repository(root, runner)
    here = repository.ask("rev-parse", "HEAD")
    other = "" if here == recorded.commit else f", and the commit here is {(here or 'none')[:12]}"
    if recorded.dirty:
        words = f"built from changed files of commit {short}{other}; the files here are taken"
        return _copied(root, into, words)
    if repository.ask("cat-file", "-e", f"{recorded.commit}^{{commit}}") is None:
        return _copied(root, into, f"commit {short} is not here; the files here are taken")
    done = repository.copy(recorded.commit, into)
    if not done.ok:
        raise KbuildError(f"git cannot make a copy of the source: {done.output.strip()}")
    copy = into / (repository.ask("rev-parse", "--show-prefix") or "")
    if here != recorded.commit:
        return FreshSource(copy, (f"built from commit {short}{other}; {short} is built again",))
    if repository.is_changed("."):
        words = f"files here differ from commit {short}, which is built again without that"
        return FreshSource(copy, (words,))
    return FreshSource(copy)


def _copied(root: Path, into: Path, *warnings: str) -> FreshSource:
    tree = SourceTree(root)

    def left_out(folder: str, names: Iterable[str]) -> set[str]:
        top = _LEFT_OUT if Path(folder) == root else set()
        hidden = {name for name in names if name.startswith(".") and Path(folder, name).is_dir()}
        odd = {name for name in names if _is_odd(tree, Path(folder, name))}
        return hidden | top | odd | {"__pycache__"}

    shutil.copytree(root, into, ignore=left_out, ignore_dangling_symlinks=True)
    return FreshSource(into, warnings)


def _is_odd(tree: SourceTree, path: Path) -> bool:
    """True for pipes, devices and links that lead out or nowhere: no build takes these."""
    name = path.relative_to(tree.root).as_posix()
    return not tree.is_inside(name) or (not path.is_dir() and tree.fault(name) is not None)

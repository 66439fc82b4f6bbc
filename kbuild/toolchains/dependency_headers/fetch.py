"""Fetches header dependencies into the store: from a pinned wheel, or a git tag.

A tag must stay the commit that it was when it was first fetched. Nothing of a repository is run:
no hooks, no submodules; and git works in a folder of kbuild's. A server that does not answer is
given up.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.system.errors import ToolchainError
from kbuild.system.files import replace_atomically, sha256
from kbuild.system.processes import ProcessResult, Runner
from kbuild.system.store import MakeEntry, Recipe, Store, StoreEntry
from kbuild.system.untrusted import read_json, reading
from kbuild.toolchains.dependency_headers.pins import (
    DependencyHeaders,
    PinnedLibrary,
    dependency_headers,
    tree_mismatch,
)
from kbuild.toolchains.wheels.package_index import PackageIndex, WheelFetcher
from kbuild.toolchains.wheels.settings import pip_settings
from kbuild.toolchains.wheels.wheel_file import MemberDestination


@dataclass(frozen=True)
class HeaderDownload:
    """One way to fetch one dependency."""

    pin: PinnedLibrary
    way: str
    origin: str
    digest: str
    """A digest that is known before the content is fetched."""
    inputs: Mapping[str, Any]
    """Everything that determines the content."""
    make: MakeEntry

    @property
    def recipe(self) -> Recipe:
        """The store's entry."""
        return Recipe(f"source-{self.pin.name}", self.pin.version, self.inputs)

    def expected(self, store: Store) -> DependencyHeaders:
        """The headers that a download would give."""
        root = store.place(self.recipe).root
        return dependency_headers(self.pin, root, self.origin, self.digest)

    def installed(self, store: Store) -> DependencyHeaders | None:
        """The headers of an earlier download; None without one."""
        entry = store.find(self.recipe)
        return None if entry is None else self._source(entry.touch())

    def install(self, store: Store) -> DependencyHeaders:
        """Fetch it, unless another process has done so meanwhile.

        Raises:
            ToolchainError: it cannot be fetched, or is not what it should be.
        """
        return self._source(store.ensure(self.recipe, self._checked))

    def _source(self, entry: StoreEntry) -> DependencyHeaders:
        return dependency_headers(
            self.pin, entry.root, entry.facts["origin"], entry.facts["digest"]
        )

    def _checked(self, root: Path) -> Mapping[str, Any]:
        facts = {"origin": self.origin, "digest": self.digest, **self.make(root)}
        wrong = tree_mismatch(self.pin, root)
        if wrong is not None:
            raise ToolchainError(f"the fetched source {wrong}")
        return facts


def confirm_tag(folder: Path, repository: str, tag: str, commit: str) -> None:
    """Compare the commit of a git tag with that of its first fetch, or remember it in `folder`.

    Raises:
        ToolchainError: the tag is another commit than it was.
    """
    file = folder / f"{sha256(f'{repository} {tag}'.encode())[:12]}.json"
    kind, hint = "the record of a tag", "delete it if the tag may be taken as it is now"
    known = commit
    with suppress(FileNotFoundError), reading(file, kind, hint=hint):
        known = str(read_json(file, kind, hint=hint)["commit"])
    if known != commit:
        raise ToolchainError(
            f"tag {tag} of {repository} is commit {commit[:12]}, but was {known[:12]} when it was "
            f"first fetched; if it was moved for a good reason, delete {file}"
        )
    seen = {"repository": repository, "tag": tag, "commit": commit}
    replace_atomically(file, (json.dumps(seen, indent=1) + "\n").encode(), durable=True)


SERVER_TIMEOUT = 20
"""Seconds that a server may take to say what a tag is."""
_STALL_OPTIONS = ("-c", "http.lowSpeedLimit=1000", "-c", f"http.lowSpeedTime={SERVER_TIMEOUT}")
# The files are the same for every user, whatever line endings their git is set to.
_CHECKOUT_OPTIONS = ("-c", "core.autocrlf=false", "-c", "advice.detachedHead=false",
                 "-c", f"core.hooksPath={os.devnull}")  # fmt: skip


def git_download(
    pin: PinnedLibrary, runner: Runner, environ: Mapping[str, str], tags: Path
) -> HeaderDownload | str:
    """The download through git, or the reason why there is none; `tags` holds commits of tags."""
    repository = pin.library.repository
    if repository is None:
        return f"no repository with {pin.library.title} is known"
    if shutil.which("git", path=environ.get("PATH")) is None:
        return "there is no git program"
    git = GitClient(runner, environ)

    def make(root: Path) -> Mapping[str, Any]:
        # On the file system of `root`, so that its folders can be moved by a rename.
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=".clone-") as scratch:
            tree = Path(scratch, "tree")
            commit = git.clone(repository, pin.tag, tree)
            confirm_tag(tags, repository, pin.tag, commit)
            move_headers(tree, root, pin.library.include)
        return {
            "origin": f"git tag {pin.tag}, commit {commit[:12]}",
            "digest": f"commit:{commit}",
            "sources": [{"repository": repository, "tag": pin.tag, "commit": commit, "fetched": 0}],
        }

    return HeaderDownload(
        pin=pin,
        way=f"git tag {pin.tag}",
        origin=f"git tag {pin.tag}, not fetched yet",
        digest="",
        inputs={"repository": repository, "tag": pin.tag, "include": list(pin.library.include)},
        make=make,
    )


class GitClient:
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
        completed = self._run(
            target, "ls-remote", repository, f"refs/tags/{tag}", patience=SERVER_TIMEOUT
        )
        if not completed.output.strip():
            raise ToolchainError(f"the repository has no tag {tag}")
        # Without a template no hooks are installed, and nothing of the repository can run.
        options = ("--quiet", "--depth", "1", "--no-recurse-submodules", "--template=")
        self._run(target, "clone", *options, "--branch", tag, "--", repository, str(target))
        return self._run(target, "-C", str(target), "rev-parse", "HEAD").output.strip()

    def _run(self, target: Path, *arguments: str, patience: int | None = None) -> ProcessResult:
        limit = ("timeout", str(patience)) if patience and shutil.which("timeout") else ()
        command = (*limit, "git", *_STALL_OPTIONS, *_CHECKOUT_OPTIONS, *arguments)
        beside = target.parent.resolve()
        # git is not to take a repository around the store for its own.
        env = {**self.env, "GIT_CEILING_DIRECTORIES": str(beside.parent)}
        done = self.runner.run(command, cwd=beside, env=env)
        if not done.ok:
            lines = [line.strip() for line in done.output.splitlines() if line.strip()]
            fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
            silence = (
                f"no answer within {patience} seconds" if patience else f"exit {done.returncode}"
            )
            raise ToolchainError(next(iter((*fatal, *lines[-1:])), silence))
        return done


def move_headers(tree: Path, root: Path, include: tuple[str, ...]) -> None:
    """Move the include folders and the licences of a tree to `root`."""
    for folder in include:
        if (tree / folder).is_dir():
            (root / folder).parent.mkdir(parents=True, exist_ok=True)
            (tree / folder).rename(root / folder)
    for path in tree.glob("LICENSE*"):
        path.rename(root / path.name)


PACKAGE_INDEX = "package index"


def wheel_download(
    pin: PinnedLibrary, runner: Runner, environ: Mapping[str, str]
) -> HeaderDownload | str:
    """The download through the package index, or the reason why there is none."""
    if pin.wheel is None:
        return f"no wheel is known that holds {pin.title}"
    locked, root = pin.wheel.locked, pin.wheel.root
    place = headers_below(root, pin.library.include)

    def make(folder: Path) -> Mapping[str, Any]:
        with PackageIndex(pip_settings(runner, environ)) as index:
            fetched = WheelFetcher(index).unpack((locked,), folder, place)
        return {"sources": [fetched.to_json()]}

    return HeaderDownload(
        pin=pin,
        way=PACKAGE_INDEX,
        origin=f"{locked.project} {locked.version} of the package index, "
        f"sha256 {locked.sha256[:12]}",
        digest=f"sha256:{locked.sha256}",
        inputs={"wheel": locked.sha256, "root": root, "include": list(pin.library.include)},
        make=make,
    )


def headers_below(root: str, include: tuple[str, ...]) -> MemberDestination:
    """Members of the include folders, and licences; see `MemberDestination`."""

    def place(member: str) -> str | None:
        name = member.rpartition("/")[2]
        if ".dist-info/" in member:
            return name if name.startswith("LICENSE") else None
        inside = member.removeprefix(f"{root}/")
        kept = inside != member and any(inside.startswith(f"{folder}/") for folder in include)
        return inside if kept else None

    return place
